"""Reading and extending chains on an open connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import exc

from fencepost.errors import CheckpointForkError, ExecutionNotFoundError
from fencepost.fence import FenceToken
from fencepost.records import (
    Checkpoint,
    CheckpointKind,
    Commit,
    Event,
    EventName,
    Execution,
    NewExecution,
    Status,
)
from fencepost.stores.sql import rows, statements, sweeps
from fencepost.stores.sql.schema import checkpoints, executions


def read_execution(connection: Any, execution_id: UUID) -> Execution | None:
    """The execution's row."""
    query = sa.select(*rows.EXECUTION_COLUMNS).where(executions.c.execution_id == execution_id)
    row = connection.execute(query).first()
    return rows.execution(row) if row is not None else None


def read_digest(connection: Any, execution_id: UUID) -> str | None:
    """The digest of the input that an execution was started with."""
    query = sa.select(executions.c.input_digest).where(executions.c.execution_id == execution_id)
    digest: str | None = connection.execute(query).scalar()
    return digest


def lock_execution(connection: sa.Connection, execution_id: UUID) -> Execution:
    """The execution's row, locked until the transaction ends."""
    query = (
        sa.select(*rows.EXECUTION_COLUMNS)
        .where(executions.c.execution_id == execution_id)
        .with_for_update()
    )
    row = connection.execute(query).first()
    if row is None:
        raise ExecutionNotFoundError(execution_id)
    return rows.execution(row)


def read_chain(connection: sa.Connection, execution_id: UUID) -> tuple[Checkpoint, ...]:
    """All checkpoints, in order."""
    query = (
        sa.select(checkpoints)
        .where(checkpoints.c.execution_id == execution_id)
        .order_by(checkpoints.c.seq)
    )
    return tuple(rows.checkpoint(row) for row in connection.execute(query))


def read_checkpoint(connection: sa.Connection, checkpoint_id: UUID) -> Checkpoint | None:
    """One checkpoint by its id."""
    query = sa.select(checkpoints).where(checkpoints.c.checkpoint_id == checkpoint_id)
    row = connection.execute(query).first()
    return rows.checkpoint(row) if row is not None else None


def head_kind(connection: sa.Connection, execution: Execution) -> CheckpointKind:
    """The kind of the newest checkpoint."""
    query = sa.select(checkpoints.c.kind).where(checkpoints.c.checkpoint_id == execution.head)
    return CheckpointKind(connection.execute(query).scalar_one())


def has_live_children(connection: sa.Connection, execution: Execution) -> bool:
    """Whether any child may still run."""
    query = sa.select(statements.live_children(execution.execution_id))
    return bool(connection.execute(query).scalar())


def extend_in_one_statement(connection: sa.Connection, commit: Commit) -> Checkpoint | None:
    """Fence, head and checkpoint in one round trip (PostgreSQL). None means refused."""
    parameters = statements.advance_values(commit) | statements.prefixed(rows.committed(commit))
    try:
        row = connection.execute(statements.EXTEND_CHAIN, parameters).first()
    except exc.IntegrityError as problem:
        raise _fork(commit) from problem
    return rows.checkpoint(row) if row is not None else None


def extend(connection: sa.Connection, commit: Commit, grace: float) -> Checkpoint | None:
    """The same as several statements, with all that lands beside it. None means refused.

    Args:
        connection: In a transaction.
        commit: What lands.
        grace: Seconds until the reaper looks for children that nobody has begun.
    """
    advanced = connection.execute(statements.ADVANCE, statements.advance_values(commit))
    if advanced.rowcount != 1:
        return None
    try:
        row = connection.execute(statements.INSERT_CHECKPOINT, rows.committed(commit)).one()
    except exc.IntegrityError as problem:
        raise _fork(commit) from problem
    if commit.children:
        _insert_children(connection, commit.children, grace)
    if commit.raise_epochs:
        _raise_epochs(connection, commit)
    if commit.undo_children_of is not None:
        step, visit = commit.undo_children_of
        parent = commit.token.execution_id
        connection.execute(statements.undo_children(parent, step, visit))
        sweeps.admit(connection, parent, 0.0)
    return rows.checkpoint(row)


def _insert_children(
    connection: sa.Connection, children: Sequence[NewExecution], grace: float
) -> None:
    for due in (True, False):
        values = [rows.new_execution(c) for c in children if (c.status is Status.ACTIVE) is due]
        if values:
            connection.execute(statements.insert_execution(grace if due else None), values)
    connection.execute(sa.insert(checkpoints), [rows.start_checkpoint(child) for child in children])
    started = [
        rows.event_values(Event(execution_id=c.execution_id, name=EventName.STARTED, epoch=0))
        for c in children
    ]
    connection.execute(statements.INSERT_EVENT, started)


def _raise_epochs(connection: sa.Connection, commit: Commit) -> None:
    token = commit.token
    raised = [(token.execution_id, token.epoch + 1, commit.seq)]
    level = [token.execution_id]
    while level:
        found = connection.execute(statements.raise_epochs_of(level)).all()
        level = [row.execution_id for row in found]
        raised += [(row.execution_id, row.epoch, row.head_seq) for row in found]
    events = [
        Event(
            execution_id=execution_id,
            name=EventName.EPOCH_RAISED,
            epoch=epoch,
            owner=token.owner,
            details={"by": str(token.execution_id), "head_seq": head_seq},
        )
        for execution_id, epoch, head_seq in raised
    ]
    entered = Event(
        execution_id=token.execution_id,
        name=EventName.COMPENSATING,
        epoch=token.epoch,
        owner=token.owner,
        step_key=token.step_key,
        details={"failure": commit.result["failure"]["code"]},
    )
    connection.execute(
        statements.INSERT_EVENT, [rows.event_values(event) for event in (entered, *events)]
    )


def refusal(
    token: FenceToken, current: Execution, name: EventName, sink: str, digest: str | None
) -> Event:
    """The audit event of a refused write; no digest where nothing was there to be written."""
    return Event(
        execution_id=token.execution_id,
        name=name,
        epoch=token.epoch,
        current_epoch=current.epoch,
        owner=token.owner,
        current_owner=current.owner,
        step_key=token.step_key,
        sink=sink,
        payload_digest=digest,
    )


def _fork(commit: Commit) -> CheckpointForkError:
    return CheckpointForkError(
        f"execution {commit.token.execution_id}: {commit.kind} of {commit.token.step_key} is"
        " already in the chain",
        execution_id=str(commit.token.execution_id),
        step_key=commit.token.step_key,
    )
