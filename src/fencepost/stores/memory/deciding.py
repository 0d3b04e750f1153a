"""A person's decisions: going on after parking, pausing, and going on after a failure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from fencepost.records import EventName, Execution, Status
from fencepost.stores.memory import waiting
from fencepost.stores.memory.moment import Moment, wrong_state
from fencepost.stores.memory.tables import Row, stored


def unpark(moment: Moment, execution_id: UUID, why: str, by: str, directive: Any) -> Execution:
    """See `ExecutionStore.unpark`."""
    row = moment.row(execution_id)
    parked = row.execution
    if parked.status is not Status.PARKED:
        raise wrong_state(parked, "is not parked")
    # A child goes back through its parent's cap: its place may have been filled.
    queued = parked.parent_id is not None
    _go_on(moment, row, queued=queued, directive=stored(directive))
    details = {"why": why, "by": by, "reason": parked.parked_reason}
    if directive is not None:
        details["directive"] = directive
    moment.note(row, EventName.UNPARKED, details=details)
    return row.execution


def reopen(moment: Moment, execution_id: UUID, by: str, why: str) -> Execution:
    """See `ExecutionStore.reopen`."""
    row = moment.row(execution_id)
    failed = row.execution
    if failed.status is not Status.FAILED:
        raise wrong_state(failed, "can't be reopened: only one that has failed can")
    if failed.parent_id is not None:
        raise wrong_state(failed, "can't be reopened: its parent has gone on")
    # A deadline that has passed would turn it back again at once.
    passed = failed.deadline_at is not None and failed.deadline_at <= moment.at
    _go_on(
        moment,
        row,
        queued=False,
        ended_at=None,
        result=None,
        paused_at=None,
        turned_back=None,
        deadline_at=None if passed else failed.deadline_at,
        directive={"do": "reopen", "by": by, "why": why},
    )
    moment.note(row, EventName.REOPENED, details={"by": by, "why": why})
    return row.execution


def _go_on(moment: Moment, row: Row, *, queued: bool, **changes: Any) -> None:
    row.update(
        status=Status.QUEUED if queued else Status.ACTIVE,
        parked_reason=None,
        error=None,
        attempt=0,
        recoveries=0,
        **changes,
    )
    moment.due(row, timedelta(0))
    if queued:
        row.due_at = None


def pause(moment: Moment, execution_id: UUID, by: str, why: str) -> Execution:
    """See `ExecutionStore.pause`."""
    row = moment.row(execution_id)
    if row.execution.status.ended:
        raise wrong_state(row.execution, "has ended and can't be paused")
    if row.execution.paused_at is not None:
        return row.execution
    for member in _family(moment, row):
        if not member.execution.status.ended and member.execution.paused_at is None:
            member.update(paused_at=moment.at)
    moment.note(row, EventName.PAUSED, owner=None, details={"by": by, "why": why})
    return row.execution


def resume(moment: Moment, execution_id: UUID, by: str, why: str) -> list[Execution]:
    """See `ExecutionStore.resume`."""
    row = moment.row(execution_id)
    if row.execution.status.ended:
        raise wrong_state(row.execution, "has ended and can't be resumed")
    if row.execution.paused_at is None:
        raise wrong_state(row.execution, "is not paused")
    family = _family(moment, row)
    for member in family:
        if member.execution.paused_at is not None:
            _resume(moment, member)
    moment.note(row, EventName.RESUMED, owner=None, details={"by": by, "why": why})
    return [
        member.execution
        for member in family
        if member.due_at is not None
        and member.due_at <= moment.now
        and waiting.runnable(moment.tables, member, moment.at)
    ]


def _resume(moment: Moment, row: Row) -> None:
    # Messages that came during the pause are gone. What was to be begun, or had been looked at,
    # is due; a failed attempt's delay goes on.
    execution = row.execution
    active = execution.status is Status.ACTIVE
    unbegun = active and execution.owner is None and execution.attempt == 0
    if row.due_at is not None and (unbegun or row.claims > 0):
        row.due_at = moment.now
    row.claims = 0
    row.update(paused_at=None)


def _family(moment: Moment, row: Row) -> list[Row]:
    return [row, *moment.tables.descendants([row.execution.execution_id])]
