"""Reading and extending chains on an open connection."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import exc

from fencepost.errors import CheckpointForkError
from fencepost.fence import FenceToken
from fencepost.records import (
    Checkpoint,
    Commit,
    Event,
    EventName,
    Execution,
    NewExecution,
    Status,
)
from fencepost.stores.sql import rows, signals, statements, turning
from fencepost.stores.sql.schema import checkpoints, executions
from fencepost.stores.sql.types import now


def read_execution(connection: Any, execution_id: UUID) -> Execution | None:
    """The execution's row."""
    query = sa.select(*rows.EXECUTION_COLUMNS).where(executions.c.execution_id == execution_id)
    row = connection.execute(query).first()
    return rows.execution(row) if row is not None else None


def read_with_time(connection: sa.Connection, execution_id: UUID) -> tuple[Execution, datetime]:
    """The row of an execution that exists, and the database's time."""
    query = sa.select(*rows.EXECUTION_COLUMNS, now().label("at"))
    row = connection.execute(query.where(executions.c.execution_id == execution_id)).one()
    return rows.execution(row), row.at


def read_digest(connection: Any, execution_id: UUID) -> str | None:
    """The digest of the input that an execution was started with."""
    query = sa.select(executions.c.input_digest).where(executions.c.execution_id == execution_id)
    digest: str | None = connection.execute(query).scalar()
    return digest


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
    advance = statements.ADVANCE.returning(executions.c.paused_at)
    advanced = connection.execute(advance, statements.advance_values(commit)).first()
    if advanced is None:
        return None
    try:
        row = connection.execute(statements.INSERT_CHECKPOINT, rows.committed(commit)).one()
    except exc.IntegrityError as problem:
        raise _fork(commit) from problem
    if commit.children:
        _insert_children(connection, commit.children, grace, advanced.paused_at)
    signals.land(connection, commit)
    turning.land(connection, commit, advanced.paused_at)
    return rows.checkpoint(row)


def _insert_children(
    connection: sa.Connection,
    children: Sequence[NewExecution],
    grace: float,
    paused_at: datetime | None,
) -> None:
    for due in (True, False):
        values = [
            rows.new_execution(child) | {"paused_at": paused_at}
            for child in children
            if (child.status is Status.ACTIVE) is due
        ]
        if values:
            connection.execute(statements.insert_execution(grace if due else None), values)
    begun = [values for child in children for values in rows.first_checkpoints(child)]
    connection.execute(sa.insert(checkpoints), begun)
    told = [values for child in children for values in rows.first_events(child)]
    connection.execute(statements.INSERT_EVENT, told)


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
