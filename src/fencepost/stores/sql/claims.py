"""What the reaper selects: rows whose time has come. Builders build, `sweeps` executes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from fencepost.records import Phase, Status
from fencepost.stores.sql import rows
from fencepost.stores.sql.schema import HAS_DEADLINE, executions
from fencepost.stores.sql.types import after, begun
from fencepost.stores.sql.waiting import TO_BE_LOOKED_AT, WITH_PLACES

MAX_DOUBLINGS = 5
"""The reaper's wait for a row grows to 2**5 times the first one, and no further."""


def hide(execution_ids: Sequence[UUID], hold: float) -> sa.Update:
    """Hide rows from other reapers for a while that doubles with each claim."""
    doublings = sa.case(
        (executions.c.dispatches > MAX_DOUBLINGS, MAX_DOUBLINGS), else_=executions.c.dispatches
    )
    factor = sa.literal(1).bitwise_lshift(doublings)
    return (
        sa.update(executions)
        .where(executions.c.execution_id.in_(execution_ids))
        .values(
            due_at=after(sa.literal(hold) * factor),
            dispatches=executions.c.dispatches + 1,
        )
        .returning(*rows.EXECUTION_COLUMNS)
    )


def active_among(execution_ids: Sequence[UUID]) -> sa.Select[Any]:
    """Those of these executions to which work is owed."""
    return (
        sa.select(executions.c.execution_id)
        .where(executions.c.execution_id.in_(execution_ids))
        .where(executions.c.status == Status.ACTIVE, executions.c.paused_at.is_(None))
        .order_by(executions.c.execution_id)
        .with_for_update()
    )


def due(limit: int, known: Collection[tuple[str, str]] | None) -> sa.Select[Any]:
    """Executions to which work is owed, and whose time has come."""
    query = sa.select(executions.c.execution_id).where(
        executions.c.status == Status.ACTIVE,
        executions.c.due_at <= begun(),
        executions.c.paused_at.is_(None),
    )
    if known is not None:
        query = query.where(_is_known(known))
    return (
        query.order_by(executions.c.priority.desc(), executions.c.due_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )


def _is_known(known: Collection[tuple[str, str]]) -> sa.ColumnElement[bool]:
    definition = sa.tuple_(executions.c.saga, executions.c.version)
    return definition.in_(sorted(known)) if known else sa.false()


def waiting(limit: int, known: Collection[tuple[str, str]] | None) -> sa.Select[Any]:
    """Waiting executions that can go on, or that have places to fill."""
    query = sa.select(executions.c.execution_id).where(
        executions.c.due_at <= begun(), TO_BE_LOOKED_AT
    )
    if known is not None:
        query = query.where(sa.or_(_is_known(known), WITH_PLACES))
    return query.order_by(executions.c.due_at).limit(limit).with_for_update(skip_locked=True)


def overdue(limit: int) -> sa.Select[Any]:
    """Executions on their way forward whose deadline has passed; paused ones too."""
    return (
        sa.select(*rows.EXECUTION_COLUMNS)
        .where(
            HAS_DEADLINE,
            executions.c.deadline_at <= begun(),
            executions.c.phase == Phase.FORWARD,
            # Of those that haven't ended. An equality would lead SQLite to another index.
            executions.c.status != Status.PARKED,
        )
        .order_by(executions.c.deadline_at)
        .limit(limit)
    )
