"""Invariant 3: a wait ends once, by its time or its signal; a choice is on record before its way.

A signal is taken by one wait. Times are all the database server's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fencepost.verify.facts import CheckpointFact, ExecutionFact, Facts, SignalFact
from fencepost.verify.invariant import Findings
from fencepost.verify.turns import Visit, forward

STATEMENTS_APART = timedelta(milliseconds=100)
"""The end of a wait and its checkpoint's time are asked for in two statements."""


def check(facts: Facts, found: Findings) -> None:
    """Every wait, every signal and every decision."""
    for execution_id, chain in facts.chains.items():
        _followed(chain, found)
        waits = {c.of: c for c in chain if c.kind == "wait"}
        signals = facts.signals.get(execution_id, ())
        for entry in chain:
            since = waits.get(entry.of)
            if entry.kind == "woken" and since is not None and not entry.inherited:
                found.examined("waits")
                _woken(since, entry, signals, found)
        for signal in signals:
            found.examined("signals")
            _taken(chain, signal, found)
        execution = facts.executions.get(execution_id)
        if execution is not None:
            _decisions(execution, chain, found)


def _followed(chain: Sequence[CheckpointFact], found: Findings) -> None:
    """Nothing comes between a wait and its end, on the way forward."""
    waits: Visit | None = None
    for entry in forward(chain):
        if entry.kind == "woken" and entry.of != waits:
            found.violated(
                "wait.without-wait",
                entry.execution_id,
                f"checkpoint {entry.seq} ends the wait {entry.step!r}, which had not begun",
                seq=entry.seq,
                visit=entry.visit,
            )
        elif entry.kind != "woken" and waits is not None:
            found.violated(
                "wait.passed-over",
                entry.execution_id,
                f"it went on at {entry.seq} though the wait {waits[0]!r} was not over",
                seq=entry.seq,
                visit=waits[1],
            )
        waits = entry.of if entry.kind == "wait" else None


# -- how waits end -------------------------------------------------------------------------


def _woken(
    since: CheckpointFact, woken: CheckpointFact, signals: Sequence[SignalFact], found: Findings
) -> None:
    waited_for = since.told("signal")
    match woken.told("by"):
        case "time" if waited_for is None and (over := _over_at(since)) is not None:
            if woken.created_at + STATEMENTS_APART < over:
                _wrong(woken, "wait.early", "ended before its time had come", found, until=over)
        case "signal" if waited_for is not None:
            _by_signal(waited_for, woken, signals, found)
        case other:
            what = f"was ended by {other!r}, which it didn't wait for"
            _wrong(woken, "wait.by-nothing", what, found, waited_for=since.result)


def _over_at(since: CheckpointFact) -> datetime | None:
    seconds, until = since.told("seconds"), since.told("until")
    try:
        if until is not None:
            return datetime.fromisoformat(until)
        return None if seconds is None else since.created_at + timedelta(seconds=seconds)
    except (ValueError, TypeError):
        return None  # it is told below that nobody knows what it waited for


def _by_signal(
    name: str, woken: CheckpointFact, signals: Sequence[SignalFact], found: Findings
) -> None:
    by = woken.told("signal_id")
    signal = next((signal for signal in signals if str(signal.signal_id) == by), None)
    if signal is None:
        _wrong(
            woken, "wait.signal-unknown", "was ended by a signal that nobody sent", found, signal=by
        )
        return
    if signal.consumed_by != woken.step_key:
        what = "was ended by a signal that is not its own"
        _wrong(woken, "wait.signal-of-another", what, found, consumed_by=signal.consumed_by)
    if (signal.name, signal.payload) != (name, woken.told("payload")):
        what = "has on record another signal than was sent"
        _wrong(woken, "wait.signal-differs", what, found, sent=[signal.name, signal.payload])


def _wrong(woken: CheckpointFact, code: str, what: str, found: Findings, **more: Any) -> None:
    found.violated(
        code,
        woken.execution_id,
        f"the wait {woken.step!r} {what}",
        seq=woken.seq,
        ended_at=woken.created_at,
        woken=woken.result,
        **more,
    )


# -- signals -------------------------------------------------------------------------------


def _taken(chain: Sequence[CheckpointFact], signal: SignalFact, found: Findings) -> None:
    takers = list(_takers(chain, signal))
    if signal.consumed_by is None and takers:
        wrong = "is free to be taken, and was"
    elif signal.consumed_by is not None and signal.rejected is not None:
        wrong = "was taken, and nobody may take it"
    elif signal.consumed_by is not None and len(takers) != 1:
        wrong = f"counts as taken, and {len(takers)} checkpoints have taken it"
    else:
        return
    found.violated(
        "wait.signal-taken",
        signal.execution_id,
        f"signal {signal.name!r} {wrong}",
        signal_id=signal.signal_id,
        consumed_by=signal.consumed_by,
        rejected=signal.rejected,
        seqs=[taker.seq for taker in takers],
    )


def _takers(chain: Sequence[CheckpointFact], signal: SignalFact) -> Iterator[CheckpointFact]:
    for entry in chain:
        if entry.inherited:
            continue
        woken = entry.kind == "woken" and entry.told("signal_id") == str(signal.signal_id)
        # A person's no is a signal as well: the execution turns back with it.
        refused = entry.kind == "compensating" and entry.step_key == signal.consumed_by
        if woken or refused:
            yield entry


# -- decisions -----------------------------------------------------------------------------


def _decisions(execution: ExecutionFact, chain: Sequence[CheckpointFact], found: Findings) -> None:
    me: UUID = execution.execution_id
    last: CheckpointFact | None = None
    for last in forward(chain):
        if last.kind != "decision":
            continue
        found.examined("decisions")
        answer = last.result if isinstance(last.result, dict) else {}
        branch, loop = isinstance(answer.get("case"), str), isinstance(answer.get("again"), bool)
        if len(answer) != 1 or not (branch or loop):
            found.violated(
                "decision.unreadable",
                me,
                f"checkpoint {last.seq} doesn't tell which way {last.step!r} went",
                seq=last.seq,
                result=last.result,
            )
    if last is None or last.kind != "decision" or last.told("again") is not True:
        return
    if execution.status == "succeeded" and execution.phase != "compensating":
        found.violated(
            "decision.not-followed",
            me,
            f"the loop {last.step!r} wanted another pass, and it succeeded without",
            seq=last.seq,
        )
