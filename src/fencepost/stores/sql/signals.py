"""Signals: kept until a wait takes them. The execution's row is locked before they are."""

from __future__ import annotations

from uuid import UUID

import sqlalchemy as sa

from fencepost.errors import CheckpointForkError
from fencepost.records import (
    Commit,
    Event,
    EventName,
    Execution,
    NewSignal,
    SentSignal,
    Status,
)
from fencepost.stores.sql import lines, rows, statements
from fencepost.stores.sql.schema import executions, signals
from fencepost.stores.sql.types import now
from fencepost.stores.sql.waiting import pending


def send(connection: sa.Connection, signal: NewSignal) -> tuple[SentSignal, bool]:
    """Store a signal for the latest of a line, and make whoever waits for it due."""
    execution = lines.lock_latest(connection, signal.execution_id)
    stored = _already_sent(connection, signal, execution)
    if stored is not None:
        return stored, False
    if execution.status.ended:
        raise lines.wrong_state(execution, "has ended: it takes no signals")
    insert = sa.insert(signals).values(
        signal_id=signal.signal_id,
        execution_id=execution.execution_id,
        name=signal.name,
        key=signal.key,
        payload=signal.payload,
        by=signal.by,
    )
    sent = rows.signal(connection.execute(insert.returning(*rows.SIGNAL_COLUMNS)).one())
    details = {"signal_id": str(sent.signal_id), "name": sent.name, "by": sent.by, "key": sent.key}
    _note(connection, EventName.SIGNAL_SENT, execution.execution_id, execution.epoch, details)
    if execution.status is Status.WAITING and execution.waits_for == signal.name:
        _make_due(connection, execution.execution_id)
    return sent, True


def _already_sent(
    connection: sa.Connection, signal: NewSignal, execution: Execution
) -> SentSignal | None:
    same = signals.c.signal_id == signal.signal_id
    if signal.key is not None:
        # What was taken before the execution was continued as new counts, too.
        line = sa.select(executions.c.execution_id).where(
            executions.c.root_id == execution.root_id,
            executions.c.lineage_id == execution.lineage_id,
        )
        keyed = sa.and_(
            signals.c.execution_id.in_(line),
            signals.c.name == signal.name,
            signals.c.key == signal.key,
        )
        same = sa.or_(same, keyed)
    row = connection.execute(
        sa.select(*rows.SIGNAL_COLUMNS).where(same).order_by(signals.c.number).limit(1)
    ).first()
    return None if row is None else rows.signal(row)


def read_pending(connection: sa.Connection, execution_id: UUID, name: str) -> list[SentSignal]:
    """Signals that can be taken, oldest first."""
    query = (
        sa.select(*rows.SIGNAL_COLUMNS)
        .where(*pending(execution_id, name))
        .order_by(signals.c.number)
    )
    return [rows.signal(row) for row in connection.execute(query)]


def reject(connection: sa.Connection, signal_id: UUID, reason: str) -> None:
    """Have no wait take a signal; one that was taken or rejected stays as it is."""
    update = (
        sa.update(signals)
        .where(signals.c.signal_id == signal_id)
        .where(signals.c.consumed_by.is_(None), signals.c.rejected.is_(None))
        .values(rejected=reason)
        .returning(signals.c.execution_id, signals.c.name)
    )
    rejected = connection.execute(update).first()
    if rejected is None:
        return
    query = sa.select(executions.c.epoch).where(executions.c.execution_id == rejected.execution_id)
    epoch = connection.execute(query).scalar_one()
    details = {"signal_id": str(signal_id), "name": rejected.name, "reason": reason}
    _note(connection, EventName.SIGNAL_REJECTED, rejected.execution_id, epoch, details)


def land(connection: sa.Connection, commit: Commit) -> None:
    """Do what a commit, whose row is locked, asks of its execution's signals."""
    execution_id = commit.token.execution_id
    if commit.consumes is not None:
        _consume(connection, commit, commit.consumes)
    if commit.status is Status.CONTINUED and commit.children:
        left = sa.update(signals).where(
            signals.c.execution_id == execution_id,
            signals.c.consumed_by.is_(None),
            signals.c.rejected.is_(None),
        )
        connection.execute(left.values(execution_id=commit.children[0].execution_id))
    if commit.waits_for is not None:
        wake_if_here(connection, execution_id, commit.waits_for)


def wake_if_here(connection: sa.Connection, execution_id: UUID, name: str) -> None:
    """Make an execution, whose row is locked, due at once if a signal of that name is there."""
    here = sa.select(signals.c.number).where(*pending(execution_id, name)).limit(1)
    if connection.execute(here).first() is not None:
        _make_due(connection, execution_id)


def _consume(connection: sa.Connection, commit: Commit, signal_id: UUID) -> None:
    step_key = commit.token.step_key
    update = (
        sa.update(signals)
        .where(
            signals.c.signal_id == signal_id,
            signals.c.execution_id == commit.token.execution_id,
            signals.c.rejected.is_(None),
            sa.or_(signals.c.consumed_by.is_(None), signals.c.consumed_by == step_key),
        )
        .values(consumed_by=step_key)
    )
    if connection.execute(update).rowcount != 1:
        raise CheckpointForkError(
            f"execution {commit.token.execution_id}: signal {signal_id} can't be taken by"
            f" {step_key}: it was taken before, or rejected, or is another execution's",
            execution_id=str(commit.token.execution_id),
            step_key=step_key,
            signal_id=str(signal_id),
        )


def _make_due(connection: sa.Connection, execution_id: UUID) -> None:
    connection.execute(
        sa.update(executions)
        .where(executions.c.execution_id == execution_id)
        .values(due_at=now(), dispatches=0)
    )


def _note(
    connection: sa.Connection,
    name: EventName,
    execution_id: UUID,
    epoch: int,
    details: dict[str, str | None],
) -> None:
    event = Event(execution_id=execution_id, name=name, epoch=epoch, details=details)
    connection.execute(statements.INSERT_EVENT, rows.event_values(event))
