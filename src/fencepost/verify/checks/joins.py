"""Invariant 3: a join follows its fan-out once, when every child has ended, and tells of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from fencepost.verify.facts import CheckpointFact, Facts
from fencepost.verify.invariant import Findings
from fencepost.verify.joined import Outcome, fits, outcomes
from fencepost.verify.people import decided
from fencepost.verify.turns import Visit, forward

NOTE = (
    "how many successes a quorum needs is told by the saga's definition alone: that the"
    " successes of its children, and no others, were joined is checked"
)


def check(facts: Facts, found: Findings) -> None:
    """Every fan-out, and what was committed after it."""
    for execution_id, chain in facts.chains.items():
        _followed(chain, found)
        fan_outs = {c.of: c for c in chain if c.kind == "fan-out"}
        for entry in chain:
            if entry.kind in ("join", "stop") and not entry.inherited and entry.of in fan_outs:
                found.examined(f"{entry.kind}s")
                _children(facts, execution_id, fan_outs[entry.of], entry, found)


def _followed(chain: Sequence[CheckpointFact], found: Findings) -> None:
    """A fan-out, perhaps its stop, its join: on the way forward nothing else comes between."""
    waits: Visit | None = None
    for entry in forward(chain):
        if entry.kind in ("join", "stop"):
            if entry.of != waits:
                found.violated(
                    "join.without-fan-out",
                    entry.execution_id,
                    f"checkpoint {entry.seq} is a {entry.kind} of {entry.step!r}, whose children it"
                    " wasn't waiting for",
                    seq=entry.seq,
                    visit=entry.visit,
                )
            waits = None if entry.kind == "join" else waits
            continue
        if waits is not None:
            found.violated(
                "join.passed-over",
                entry.execution_id,
                f"it went on at {entry.seq} without having joined the children of {waits[0]!r}",
                seq=entry.seq,
                visit=waits[1],
            )
        waits = entry.of if entry.kind == "fan-out" else None


def _children(
    facts: Facts,
    execution_id: UUID,
    fan_out: CheckpointFact,
    entry: CheckpointFact,
    found: Findings,
) -> None:
    ended = outcomes(facts, fan_out)
    if len(ended) != fan_out.told("children"):
        return  # Invariant 1 has it that there are as many as were announced.
    if entry.kind == "stop":
        _stopped(entry, ended, found)
        return
    found.examined("joined children", len(ended))
    turned_back = any(
        c.kind == "compensating" and c.seq > entry.seq for c in facts.chains[execution_id]
    )
    for late in _late(entry, ended, turned_back=turned_back):
        found.violated(
            "join.before-child",
            execution_id,
            f"{entry.step!r} was joined before its child {late.child.child_index} had ended",
            seq=entry.seq,
            joined_at=entry.created_at,
            child=late.child.execution_id,
            written_at=late.last_at,
            status=late.child.status,
        )
    if decided(facts, execution_id, "resolve", entry.step_key):
        found.examined("joins decided by people")
    elif all(outcome.succeeded is not None for outcome in ended):
        if not all(outcome.succeeded for outcome in ended):
            found.note(NOTE)
        if not fits(entry.result, ended):
            found.violated(
                "join.result",
                execution_id,
                f"the join of {entry.step!r} isn't what came of its children",
                seq=entry.seq,
                joined=entry.result,
                children=_told(ended),
            )


def _late(
    join: CheckpointFact, ended: Sequence[Outcome], *, turned_back: bool
) -> Iterator[Outcome]:
    for outcome in ended:
        # Once the parent has turned back, what had ended may be live again: it is undone.
        live = outcome.child.ended_at is None and not turned_back
        if live or (outcome.last_at is not None and outcome.last_at > join.created_at):
            yield outcome


def _stopped(stop: CheckpointFact, ended: Sequence[Outcome], found: Findings) -> None:
    if not any(o.succeeded and o.last_at and o.last_at <= stop.created_at for o in ended):
        found.violated(
            "join.stopped-too-early",
            stop.execution_id,
            f"children of {stop.step!r} were told to stop, and none had succeeded",
            seq=stop.seq,
            children=_told(ended),
        )


def _told(ended: Sequence[Outcome]) -> list[dict[str, object]]:
    return [
        {"index": o.child.child_index, "status": o.child.status, "value": repr(o.value)}
        for o in ended
    ]
