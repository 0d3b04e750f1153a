"""Locking executions: one, the latest of its line, or all children of some. Parents come first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from fencepost import identity
from fencepost.errors import ExecutionNotFoundError, ExecutionStateError
from fencepost.records import Execution, Status
from fencepost.stores.sql import rows
from fencepost.stores.sql.schema import executions

LOOK_AHEAD = 20
"""Executions of a line that are looked up at a time."""

CHUNK = 500
"""Ids in one statement: databases take only so many parameters."""


def wrong_state(execution: Execution, why: str) -> ExecutionStateError:
    """The error of an operation that an execution's state doesn't allow."""
    return ExecutionStateError(
        f"execution {execution.execution_id} is {execution.status}: it {why}",
        execution_id=str(execution.execution_id),
        status=str(execution.status),
    )


def chunks(ids: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    """The ids in pieces that fit into one statement each."""
    for start in range(0, len(ids), CHUNK):
        yield ids[start : start + CHUNK]


def lock(connection: sa.Connection, execution_id: UUID) -> Execution:
    """The execution's row, locked until the transaction ends.

    Raises:
        ExecutionNotFoundError: There is no such execution.
    """
    query = (
        sa.select(*rows.EXECUTION_COLUMNS)
        .where(executions.c.execution_id == execution_id)
        .with_for_update()
    )
    row = connection.execute(query).first()
    if row is None:
        raise ExecutionNotFoundError(execution_id)
    return rows.execution(row)


def lock_latest(
    connection: sa.Connection, execution_id: UUID, *, with_parent: bool = False
) -> Execution:
    """The row of an execution, or of what continues it, locked.

    Args:
        connection: In a transaction.
        execution_id: Any of the line.
        with_parent: Lock its parent before it.

    Raises:
        ExecutionNotFoundError: There is no such execution.
    """
    while True:
        execution_id, parent_id = _latest(connection, execution_id)
        if with_parent and parent_id is not None:
            lock(connection, parent_id)
        execution = lock(connection, execution_id)
        if execution.status is not Status.CONTINUED:
            return execution


def _latest(connection: sa.Connection, execution_id: UUID) -> tuple[UUID, UUID | None]:
    line = [execution_id]
    while True:
        while len(line) < LOOK_AHEAD:
            line.append(identity.continuation_id(line[-1]))
        columns = (executions.c.execution_id, executions.c.status, executions.c.parent_id)
        query = sa.select(*columns).where(executions.c.execution_id.in_(line))
        found = {row.execution_id: row for row in connection.execute(query)}
        for member in line:
            row = found.get(member)
            if row is None:
                raise ExecutionNotFoundError(member)
            if row.status != Status.CONTINUED:
                return member, row.parent_id
        line = [identity.continuation_id(line[-1])]


def lock_children(
    connection: sa.Connection, parents: Sequence[UUID], *which: sa.ColumnElement[bool]
) -> dict[UUID, str | None]:
    """Lock all children of some executions that are locked themselves; returns their owners.

    A child that is being continued as new has a successor that a statement doesn't see which
    began before: so it is asked again until none is missing.
    """
    locked: dict[UUID, Any] = {}
    for chunk in chunks(parents):
        query = (
            sa.select(executions.c.execution_id, executions.c.status, executions.c.owner)
            .where(executions.c.parent_id.in_(chunk), *which)
            .order_by(executions.c.execution_id)
            .with_for_update()
        )
        while True:
            found = {row.execution_id: row for row in connection.execute(query)}
            complete = all(
                identity.continuation_id(execution_id) in found
                for execution_id, row in found.items()
                if row.status == Status.CONTINUED
            )
            if complete or not found.keys() - locked.keys():
                break
            locked |= found
        locked |= found
    return {execution_id: row.owner for execution_id, row in locked.items()}
