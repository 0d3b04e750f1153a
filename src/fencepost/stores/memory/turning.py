"""Turning executions back: fencing out whoever runs them, and all that is below them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fencepost.failure import PARENT_FAILED
from fencepost.records import Commit, EventName, Execution, Phase, Status
from fencepost.stores.memory.moment import Moment, wrong_state
from fencepost.stores.memory.tables import Row, stored

_UNDOABLE = (Status.SUCCEEDED, Status.WAITING, Status.PARKED)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turning back.

    Attributes:
        by: The execution that it begins with.
        owner: Who owns that, for the audit trail.
        tells: Why what is below is turned back.
        paused_at: Since when that execution is paused, and with it all that is below.
    """

    moment: Moment
    by: UUID
    owner: str | None
    tells: Any
    paused_at: datetime | None

    def note_raised(self, row: Row, fenced: str | None = None) -> None:
        """Audit one raised epoch; `fenced` is who owned the execution until then."""
        head_seq = row.execution.head_seq
        details = {"by": str(self.by), "head_seq": head_seq, "from_owner": fenced}
        self.moment.note(row, EventName.EPOCH_RAISED, owner=self.owner, details=details)

    def raise_below(self, execution_ids: Iterable[UUID]) -> None:
        """Fence out whoever runs a descendant of these; they wait for their parent."""
        for row in self.moment.tables.descendants(execution_ids):
            ended, fenced = row.execution.status.ended, row.execution.owner
            turned(row, row.execution.status if ended else Status.WAITING, self.tells)
            row.update(paused_at=self.paused_at)
            self.note_raised(row, fenced)

    def stop_children(self, step: str, visit: int) -> None:
        """Turn the live children of a fan-out back: each is queued for its own undoing."""
        stopped = []
        for row in self.moment.tables.children_of(self.by, step, visit):
            if not row.execution.status.ended:
                fenced = row.execution.owner
                turned(row, Status.QUEUED, self.tells)
                row.update(paused_at=self.paused_at)
                self.note_raised(row, fenced)
                stopped.append(row.execution.execution_id)
        self.raise_below(stopped)


def turned(row: Row, status: Status, cause: Any) -> None:
    """Change what changes in each execution that is turned back."""
    execution = row.execution
    row.update(
        epoch=execution.epoch + 1,
        owner=None,
        fenced_owner=execution.owner or execution.fenced_owner,
        phase=Phase.COMPENSATING,
        status=status,
        turned_back=stored(cause),
        error=execution.error if status.ended else None,
        wake_at=None,
        waits_for=None,
        directive=None,
        parked_reason=None,
        attempt=0,
        recoveries=0,
    )
    row.due_at, row.claims = None, 0
    row.wakes_at_failures = row.wakes_at_successes = None


def land(moment: Moment, row: Row, commit: Commit) -> None:
    """Do what a commit asks of its execution's epoch and of those below it."""
    token = commit.token
    tells = PARENT_FAILED if commit.tells is None else commit.tells
    turn = Turn(moment, token.execution_id, token.owner, tells, row.execution.paused_at)
    if commit.raise_epochs:
        details = {"failure": commit.result["failure"]["code"]}
        moment.note(row, EventName.COMPENSATING, step_key=token.step_key, details=details)
        row.update(epoch=row.execution.epoch + 1)
        turn.note_raised(row)
        turn.raise_below([token.execution_id])
    if commit.stop_children_of is not None:
        turn.stop_children(*commit.stop_children_of)
    if commit.undo_children_of is not None:
        _undo_children(moment, row, *commit.undo_children_of)
    if commit.stop_children_of is not None or commit.undo_children_of is not None:
        moment.admit(row, timedelta(0))


def _undo_children(moment: Moment, parent: Row, step: str, visit: int) -> None:
    for row in moment.tables.children_of(parent.execution.execution_id, step, visit):
        execution = row.execution
        if execution.phase is Phase.COMPENSATING and execution.status in _UNDOABLE:
            # Undoing is work like any other: the concurrency cap holds for it too.
            row.update(
                status=Status.QUEUED,
                ended_at=None,
                parked_reason=None,
                paused_at=parent.execution.paused_at,
            )
            row.due_at, row.claims = None, 0


def turn_back(
    moment: Moment,
    execution_id: UUID,
    cause: Any,
    event: EventName,
    details: Mapping[str, Any],
    *,
    only_forward: bool,
) -> Execution:
    """See `ExecutionStore.turn_back`."""
    row = moment.latest(execution_id)
    before = row.execution
    if before.status.ended:
        raise wrong_state(before, "has ended and can't be turned back")
    settled = before.phase is Phase.COMPENSATING or before.status is Status.PARKED
    if only_forward and settled:
        return before
    if before.phase is Phase.PAST_PIVOT:
        raise wrong_state(before, "has passed its pivot and only goes forward")
    status = _status_when_turned(before)
    turned(row, status, cause)
    row.update(paused_at=None)
    if status is Status.ACTIVE:
        moment.due(row, timedelta(0))
    moment.note(row, event, details={**details, "previous_epoch": before.epoch})
    turn = Turn(moment, before.execution_id, None, PARENT_FAILED, None)
    turn.note_raised(row, before.owner)
    turn.raise_below([before.execution_id])
    if status is Status.QUEUED and before.parent_id is not None:
        moment.admit(moment.row(before.parent_id), timedelta(0))
    return row.execution


def _status_when_turned(before: Execution) -> Status:
    if before.status is Status.WAITING and before.turned_back is not None:
        return Status.WAITING  # for its parent, which undoes in the order that it has on record
    without_place = before.status in (Status.QUEUED, Status.PARKED)
    return Status.QUEUED if without_place and before.parent_id is not None else Status.ACTIVE
