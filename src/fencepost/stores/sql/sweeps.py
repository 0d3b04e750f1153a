"""What the reaper and the command line ask for: many executions at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from fencepost.records import Event, Execution, Status
from fencepost.stores.sql import claims, rows
from fencepost.stores.sql.schema import events, executions
from fencepost.stores.sql.types import after
from fencepost.stores.sql.waiting import AT_FAN_OUT, PLACED, head


def read_events(connection: sa.Connection, ids: Sequence[UUID], after_id: int) -> list[Event]:
    """Audit events, oldest first."""
    query = (
        sa.select(events)
        .where(events.c.execution_id.in_(ids), events.c.event_id > after_id)
        .order_by(events.c.event_id)
    )
    return [rows.event(row) for row in connection.execute(query)]


def read_children(
    connection: sa.Connection, parent_id: UUID, step: str, visit: int
) -> list[Execution]:
    """The newest execution of each child's line, by index."""
    query = (
        sa.select(*rows.EXECUTION_COLUMNS)
        .where(
            executions.c.parent_id == parent_id,
            executions.c.parent_step == step,
            executions.c.parent_visit == visit,
            executions.c.status != Status.CONTINUED,
        )
        .order_by(executions.c.child_index)
    )
    return [rows.execution(row) for row in connection.execute(query)]


def read_lineage(connection: sa.Connection, execution_id: UUID) -> list[Execution]:
    """Everything that one start led to, oldest first."""
    root = (
        sa.select(executions.c.root_id)
        .where(executions.c.execution_id == execution_id)
        .scalar_subquery()
    )
    query = (
        sa.select(*rows.EXECUTION_COLUMNS)
        .where(executions.c.root_id == root)
        .order_by(executions.c.created_at, executions.c.child_index)
    )
    return [rows.execution(row) for row in connection.execute(query)]


def claim(connection: sa.Connection, which: sa.Select[Any], hold: float) -> list[Execution]:
    """Claim the selected executions and return them in that order."""
    # Two statements: within one, PostgreSQL may run the selection again for each row, and with
    # SKIP LOCKED then claim more than its limit; and what an update returns has no order.
    chosen = connection.execute(which).scalars().all()
    if not chosen:
        return []
    hidden = connection.execute(claims.hide(chosen, hold))
    claimed = {row.execution_id: rows.execution(row) for row in hidden}
    return [claimed[execution_id] for execution_id in chosen]


def admit(connection: sa.Connection, parent_id: UUID, due_in: float) -> list[Execution]:
    """Fill the places under a parent's cap, under its row's lock."""
    parent = connection.execute(
        sa.select(executions.c.status, executions.c.max_concurrency)
        .where(executions.c.execution_id == parent_id)
        .with_for_update()
    ).first()
    if parent is None or parent.status != Status.WAITING:
        return []
    fan_out = connection.execute(
        sa.select(head.c.step, head.c.visit)
        .join(executions, executions.c.head == head.c.checkpoint_id)
        .where(executions.c.execution_id == parent_id, AT_FAN_OUT)
    ).first()
    if fan_out is None:
        return []
    child = (
        executions.c.parent_id == parent_id,
        executions.c.parent_step == fan_out.step,
        executions.c.parent_visit == fan_out.visit,
    )
    placed = connection.execute(
        sa.select(sa.func.count()).where(*child, executions.c.status.in_(PLACED))
    ).scalar_one()
    free = None if parent.max_concurrency is None else max(0, parent.max_concurrency - placed)
    queued = (
        sa.select(executions.c.execution_id)
        .where(*child, executions.c.status == Status.QUEUED, executions.c.paused_at.is_(None))
        .order_by(executions.c.child_index)
        .limit(free)
    )
    update = (
        sa.update(executions)
        .where(executions.c.execution_id.in_(queued))
        .values(status=Status.ACTIVE, due_at=after(sa.literal(due_in)))
        .returning(*rows.EXECUTION_COLUMNS)
    )
    admitted = [rows.execution(row) for row in connection.execute(update)]
    return sorted(admitted, key=lambda execution: execution.child_index or 0)
