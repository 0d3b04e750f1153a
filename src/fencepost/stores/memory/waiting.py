"""When a waiting execution may go on, and which queued children have a place."""

from __future__ import annotations

from datetime import datetime

from fencepost.records import CheckpointKind, Phase, Status
from fencepost.stores.memory.tables import Row, Tables

_FORWARD = (CheckpointKind.FAN_OUT, CheckpointKind.STOP)
_FAILED = (Status.FAILED, Status.COMPENSATED)
# A parked child takes no place: a person's answer may take days.
_PLACED = (Status.ACTIVE, Status.WAITING)


def runnable(tables: Tables, row: Row, at: datetime) -> bool:
    """Whether an execution may be acquired at that moment."""
    if row.execution.status is Status.ACTIVE:
        return row.execution.paused_at is None
    return ready(tables, row, at)


def ready(tables: Tables, row: Row, at: datetime) -> bool:
    """Whether it waits, and what it waits for is there."""
    if not _waits(row):
        return False
    children = awaited(tables, row)
    return _woken(tables, row, at) if children is None else _joined(row, children)


def has_places(tables: Tables, row: Row) -> bool:
    """Whether it waits, and has free places and queued children for them."""
    return _waits(row) and bool(admissible(tables, row))


def awaited(tables: Tables, row: Row) -> list[Row] | None:
    """The children of the fan-out at an execution's head; None where it doesn't wait for such."""
    execution = row.execution
    head = tables.checkpoints[execution.head]
    if execution.phase is Phase.COMPENSATING:
        at_fan_out = head.kind is CheckpointKind.UNDO_FAN_OUT
    else:
        at_fan_out = head.kind in _FORWARD
    if not at_fan_out:
        return None
    return tables.children_of(execution.execution_id, head.step, head.visit)


def admissible(tables: Tables, row: Row) -> list[Row]:
    """Queued children that have a free place, by index."""
    children = awaited(tables, row) or []
    queued = [
        child
        for child in children
        if child.execution.status is Status.QUEUED and child.execution.paused_at is None
    ]
    queued.sort(key=lambda child: child.execution.child_index or 0)
    cap = row.execution.max_concurrency
    if cap is None:
        return queued
    placed = sum(child.execution.status in _PLACED for child in children)
    return queued[: max(0, cap - placed)]


def _waits(row: Row) -> bool:
    execution = row.execution
    # One that was turned back from above waits for its parent, whatever its head.
    told = execution.turned_back is not None
    return execution.status is Status.WAITING and execution.paused_at is None and not told


def _joined(row: Row, children: list[Row]) -> bool:
    states = [child.execution.status for child in children]
    if all(state.ended for state in states):
        return True
    failed = sum(state in _FAILED for state in states)
    succeeded = states.count(Status.SUCCEEDED)
    return (row.wakes_at_failures is not None and failed >= row.wakes_at_failures) or (
        row.wakes_at_successes is not None and succeeded >= row.wakes_at_successes
    )


def _woken(tables: Tables, row: Row, at: datetime) -> bool:
    execution = row.execution
    head = tables.checkpoints[execution.head]
    if head.kind is not CheckpointKind.WAIT or execution.phase is Phase.COMPENSATING:
        return False
    if execution.wake_at is not None and execution.wake_at <= at:
        return True
    return bool(tables.pending(execution.execution_id, execution.waits_for))
