"""When a waiting execution may go on: said once, for whoever acquires and for the reaper."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from fencepost.records import CheckpointKind, Execution, Phase, Status
from fencepost.stores.sql.schema import checkpoints, executions, signals
from fencepost.stores.sql.statements import LIVE
from fencepost.stores.sql.types import begun

head = checkpoints.alias("head")
"""The newest checkpoint; which of its parts an execution waits for is told by its kind."""

FAILED = (Status.FAILED, Status.COMPENSATED)
# A parked child takes no place: a person's answer may take days.
PLACED = (Status.ACTIVE, Status.WAITING)


def _child(alias: str, statuses: Collection[Status]) -> tuple[Any, list[Any]]:
    """A child of the fan-out at the head that has one of these states."""
    child = executions.alias(alias)
    conditions = [
        child.c.parent_id == executions.c.execution_id,
        child.c.parent_step == head.c.step,
        child.c.parent_visit == head.c.visit,
        child.c.status.in_(statuses),
    ]
    return child, conditions


def _any(alias: str, statuses: Collection[Status]) -> sa.Exists:
    _, conditions = _child(alias, statuses)
    return sa.exists().where(*conditions).correlate(executions, head)


def _count(alias: str, statuses: Collection[Status]) -> sa.ScalarSelect[int]:
    child, conditions = _child(alias, statuses)
    counted = sa.select(sa.func.count()).select_from(child).where(*conditions)
    return counted.correlate(executions, head).scalar_subquery()


def _has_queue() -> sa.Exists:
    child, conditions = _child("queued", (Status.QUEUED,))
    conditions.append(child.c.paused_at.is_(None))
    return sa.exists().where(*conditions).correlate(executions, head)


def _as_many_as(
    wanted: sa.Column[Any], alias: str, statuses: Collection[Status]
) -> sa.ColumnElement[bool]:
    return sa.and_(wanted.is_not(None), wanted <= _count(alias, statuses))


def pending(execution_id: Any, name: Any) -> tuple[sa.ColumnElement[bool], ...]:
    """Conditions of the signals of that name that can still be taken."""
    return (
        signals.c.execution_id == execution_id,
        signals.c.name == name,
        signals.c.consumed_by.is_(None),
        signals.c.rejected.is_(None),
    )


_back = executions.c.phase == Phase.COMPENSATING

AT_FAN_OUT = sa.or_(
    sa.and_(head.c.kind.in_((CheckpointKind.FAN_OUT, CheckpointKind.STOP)), ~_back),
    sa.and_(head.c.kind == CheckpointKind.UNDO_FAN_OUT, _back),
)
"""It waits for the children of the fan-out at its head."""

_joined = sa.or_(
    ~_any("live", LIVE),
    _as_many_as(executions.c.wakes_at_failures, "failed", FAILED),
    _as_many_as(executions.c.wakes_at_successes, "succeeded", (Status.SUCCEEDED,)),
)

_woken = sa.and_(
    head.c.kind == CheckpointKind.WAIT,
    ~_back,
    sa.or_(
        executions.c.wake_at <= begun(),
        sa.exists()
        .where(*pending(executions.c.execution_id, executions.c.waits_for))
        .correlate(executions),
    ),
)

_waits = sa.and_(
    executions.c.status == Status.WAITING,
    executions.c.paused_at.is_(None),
    # One that was turned back from above waits for its parent, whatever its head.
    executions.c.turned_back.is_(sa.null()),
)

_has_places = sa.and_(
    _has_queue(),
    sa.or_(
        executions.c.max_concurrency.is_(None),
        executions.c.max_concurrency > _count("placed", PLACED),
    ),
)


def _waiting(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    # A scalar subquery and not a join: PostgreSQL takes the conditions for expensive, and would
    # rather read through all checkpoints than ask them once for each of the few rows.
    at_head = sa.select(condition).where(head.c.checkpoint_id == executions.c.head)
    return sa.and_(_waits, at_head.correlate(executions).scalar_subquery())


RUNNABLE = _waiting(sa.or_(sa.and_(AT_FAN_OUT, _joined), _woken))
"""It waits, and what it waits for is there."""

TO_BE_LOOKED_AT = _waiting(
    sa.or_(sa.and_(AT_FAN_OUT, sa.or_(_joined, _has_places)), _woken),
)
"""The same, or it has free places and queued children for them."""

WITH_PLACES = _waiting(sa.and_(AT_FAN_OUT, _has_places))
"""It waits, and has those."""


def runnable(connection: sa.Connection, execution: Execution) -> bool:
    """Whether an execution whose row is locked may be acquired."""
    if execution.paused_at is not None:
        return False
    if execution.status is not Status.WAITING:
        return execution.status is Status.ACTIVE
    query = sa.select(RUNNABLE).where(executions.c.execution_id == execution.execution_id)
    return bool(connection.execute(query).scalar())
