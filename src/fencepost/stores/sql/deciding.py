"""A person's decisions: going on after parking, pausing, and going on after a failure."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa

from fencepost.records import Event, EventName, Execution, Status
from fencepost.stores.sql import lines, rows, statements
from fencepost.stores.sql.schema import executions
from fencepost.stores.sql.statements import LIVE
from fencepost.stores.sql.types import begun, now
from fencepost.stores.sql.waiting import RUNNABLE


def unpark(
    connection: sa.Connection, execution_id: UUID, why: str, by: str, directive: Any
) -> Execution:
    """See `ExecutionStore.unpark`."""
    parked = lines.lock(connection, execution_id)
    if parked.status is not Status.PARKED:
        raise lines.wrong_state(parked, "is not parked")
    queued = parked.parent_id is not None
    connection.execute(statements.go_on(parked, queued=queued, directive=directive))
    details = {"why": why, "by": by, "reason": parked.parked_reason}
    if directive is not None:
        details["directive"] = directive
    _note(connection, EventName.UNPARKED, parked, details)
    return lines.lock(connection, execution_id)


def reopen(connection: sa.Connection, execution_id: UUID, by: str, why: str) -> Execution:
    """See `ExecutionStore.reopen`."""
    failed = lines.lock(connection, execution_id)
    if failed.status is not Status.FAILED:
        raise lines.wrong_state(failed, "can't be reopened: only one that has failed can")
    if failed.parent_id is not None:
        raise lines.wrong_state(failed, "can't be reopened: its parent has gone on")
    # A deadline that has passed would turn it back again at once.
    deadline = sa.case((executions.c.deadline_at > now(), executions.c.deadline_at))
    update = statements.go_on(
        failed,
        queued=False,
        ended_at=None,
        result=None,
        paused_at=None,
        turned_back=None,
        deadline_at=deadline,
        directive={"do": "reopen", "by": by, "why": why},
    )
    connection.execute(update)
    _note(connection, EventName.REOPENED, failed, {"by": by, "why": why})
    return lines.lock(connection, execution_id)


def pause(connection: sa.Connection, execution_id: UUID, by: str, why: str) -> Execution:
    """See `ExecutionStore.pause`."""
    execution = lines.lock(connection, execution_id)
    if execution.status.ended:
        raise lines.wrong_state(execution, "has ended and can't be paused")
    if execution.paused_at is not None:
        return execution
    # One moment for all of them, as the database's clock tells it.
    moment = connection.execute(sa.select(now())).scalar_one()
    for chunk in lines.chunks(_family(connection, execution_id)):
        connection.execute(
            sa.update(executions)
            .where(
                executions.c.execution_id.in_(chunk),
                executions.c.status.in_(LIVE),
                executions.c.paused_at.is_(None),
            )
            .values(paused_at=moment)
        )
    _note(connection, EventName.PAUSED, execution, {"by": by, "why": why})
    return lines.lock(connection, execution_id)


def resume(connection: sa.Connection, execution_id: UUID, by: str, why: str) -> list[Execution]:
    """See `ExecutionStore.resume`."""
    execution = lines.lock(connection, execution_id)
    if execution.status.ended:
        raise lines.wrong_state(execution, "has ended and can't be resumed")
    if execution.paused_at is None:
        raise lines.wrong_state(execution, "is not paused")
    due: list[Execution] = []
    for chunk in lines.chunks(_family(connection, execution_id)):
        connection.execute(_resume(chunk))
        due += [rows.execution(row) for row in connection.execute(_due_among(chunk))]
    _note(connection, EventName.RESUMED, execution, {"by": by, "why": why})
    return sorted(due, key=lambda found: (found.created_at, found.child_index or 0))


def _resume(chunk: Any) -> sa.Update:
    # Messages that came during the pause are gone. What was to be begun, or had been looked at,
    # is due; a failed attempt's delay goes on.
    unbegun = sa.and_(
        executions.c.status == Status.ACTIVE,
        executions.c.owner.is_(None),
        executions.c.attempt == 0,
    )
    asked_for = sa.and_(
        executions.c.due_at.is_not(None), sa.or_(unbegun, executions.c.dispatches > 0)
    )
    return (
        sa.update(executions)
        .where(executions.c.execution_id.in_(chunk), executions.c.paused_at.is_not(None))
        .values(
            paused_at=None,
            due_at=sa.case((asked_for, now()), else_=executions.c.due_at),
            dispatches=0,
        )
    )


def _due_among(chunk: Any) -> sa.Select[Any]:
    return sa.select(*rows.EXECUTION_COLUMNS).where(
        executions.c.execution_id.in_(chunk),
        executions.c.due_at <= begun(),
        sa.or_(executions.c.status == Status.ACTIVE, RUNNABLE),
    )


def _family(connection: sa.Connection, execution_id: UUID) -> list[UUID]:
    """An execution and its descendants, locked."""
    family, level = [execution_id], [execution_id]
    while level:
        level = list(lines.lock_children(connection, level))
        family += level
    return family


def _note(
    connection: sa.Connection, name: EventName, execution: Execution, details: dict[str, Any]
) -> None:
    event = Event(
        execution_id=execution.execution_id, name=name, epoch=execution.epoch, details=details
    )
    connection.execute(statements.INSERT_EVENT, rows.event_values(event))
