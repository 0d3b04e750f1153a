"""Signals: kept until a wait takes them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from fencepost.errors import CheckpointForkError
from fencepost.records import Commit, EventName, Execution, NewSignal, SentSignal, Status
from fencepost.stores.memory.moment import Moment, wrong_state
from fencepost.stores.memory.tables import Row, Tables, stored


def send(moment: Moment, signal: NewSignal) -> tuple[SentSignal, bool]:
    """Store a signal for the latest of a line, and make whoever waits for it due."""
    row = moment.latest(signal.execution_id)
    execution = row.execution
    already = _already_sent(moment.tables, signal, execution)
    if already is not None:
        return already, False
    if execution.status.ended:
        raise wrong_state(execution, "has ended: it takes no signals")
    sent = SentSignal(
        signal_id=signal.signal_id,
        execution_id=execution.execution_id,
        name=signal.name,
        payload=stored(signal.payload),
        key=signal.key,
        by=signal.by,
        sent_at=moment.at,
    )
    moment.tables.signals[sent.signal_id] = sent
    details = {"signal_id": str(sent.signal_id), "name": sent.name, "by": sent.by, "key": sent.key}
    moment.note(row, EventName.SIGNAL_SENT, owner=None, details=details)
    if execution.status is Status.WAITING and execution.waits_for == signal.name:
        moment.due(row, timedelta(0))
    return sent, True


def _already_sent(tables: Tables, signal: NewSignal, execution: Execution) -> SentSignal | None:
    # What was taken before the execution was continued as new counts, too.
    line = (execution.root_id, execution.lineage_id)
    for sent in tables.signals.values():
        if sent.signal_id == signal.signal_id:
            return sent
        if signal.key is None or (sent.name, sent.key) != (signal.name, signal.key):
            continue
        to = tables.rows[sent.execution_id].execution
        if (to.root_id, to.lineage_id) == line:
            return sent
    return None


def reject(moment: Moment, signal_id: UUID, reason: str) -> None:
    """Have no wait take a signal; one that was taken or rejected stays as it is."""
    signal = moment.tables.signals.get(signal_id)
    if signal is None or signal.consumed_by is not None or signal.rejected is not None:
        return
    moment.tables.signals[signal_id] = replace(signal, rejected=reason)
    details = {"signal_id": str(signal_id), "name": signal.name, "reason": reason}
    row = moment.row(signal.execution_id)
    moment.note(row, EventName.SIGNAL_REJECTED, owner=None, details=details)


def check(tables: Tables, commit: Commit) -> None:
    """Make sure that a commit may take the signal that it takes.

    Raises:
        CheckpointForkError: It may not.
    """
    if commit.consumes is None:
        return
    token = commit.token
    signal = tables.signals.get(commit.consumes)
    if (
        signal is None
        or signal.execution_id != token.execution_id
        or signal.rejected is not None
        or signal.consumed_by not in (None, token.step_key)
    ):
        raise CheckpointForkError(
            f"execution {token.execution_id}: signal {commit.consumes} can't be taken by"
            f" {token.step_key}: it was taken before, or rejected, or is another execution's",
            execution_id=str(token.execution_id),
            step_key=token.step_key,
            signal_id=str(commit.consumes),
        )


def land(moment: Moment, row: Row, commit: Commit) -> None:
    """Do what a commit that was checked asks of its execution's signals."""
    signals, mine = moment.tables.signals, commit.token.execution_id
    if commit.consumes is not None:
        taken = signals[commit.consumes]
        signals[taken.signal_id] = replace(taken, consumed_by=commit.token.step_key)
    if commit.status is Status.CONTINUED and commit.children:
        following = commit.children[0].execution_id
        for signal in list(signals.values()):
            left = signal.consumed_by is None and signal.rejected is None
            if signal.execution_id == mine and left:
                signals[signal.signal_id] = replace(signal, execution_id=following)
    if commit.waits_for is not None and moment.tables.pending(mine, commit.waits_for):
        moment.due(row, timedelta(0))
