"""Turning executions back: fencing out whoever runs them, and all that is below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from fencepost.failure import PARENT_FAILED
from fencepost.records import Commit, Event, EventName, Execution, Phase, Status
from fencepost.stores.sql import lines, rows, statements, sweeps
from fencepost.stores.sql.schema import executions
from fencepost.stores.sql.statements import LIVE
from fencepost.stores.sql.types import now

_UNDOABLE = (Status.SUCCEEDED, Status.WAITING, Status.PARKED)

_TURNED: dict[str, Any] = {
    "epoch": executions.c.epoch + 1,
    "owner": None,
    "fenced_owner": sa.func.coalesce(executions.c.owner, executions.c.fenced_owner),
    "phase": Phase.COMPENSATING,
    "wake_at": None,
    "waits_for": None,
    "wakes_at_failures": None,
    "wakes_at_successes": None,
    "directive": sa.null(),
    "parked_reason": None,
    "attempt": 0,
    "recoveries": 0,
    "dispatches": 0,
}
"""What holds of each execution that is turned back, whatever its state."""

_RAISED = (executions.c.execution_id, executions.c.epoch, executions.c.head_seq)


@dataclass(frozen=True)
class Turn:
    """One turning back.

    Attributes:
        by: The execution that it begins with.
        owner: Who owns that, for the audit trail.
        tells: Why what is below is turned back.
        paused_at: Since when that execution is paused, and with it all that is below.
    """

    connection: sa.Connection
    by: UUID
    owner: str | None
    tells: Any
    paused_at: datetime | None

    def raised(
        self, execution_id: UUID, epoch: int, head_seq: int, fenced: str | None = None
    ) -> Event:
        """The audit event of one raised epoch; `fenced` is who owned the execution until then."""
        return Event(
            execution_id=execution_id,
            name=EventName.EPOCH_RAISED,
            epoch=epoch,
            owner=self.owner,
            details={"by": str(self.by), "head_seq": head_seq, "from_owner": fenced},
        )

    def _raised(self, row: Any, owners: Mapping[UUID, str | None]) -> Event:
        fenced = owners[row.execution_id]
        return self.raised(row.execution_id, row.epoch, row.head_seq, fenced)

    def raise_below(self, level: Sequence[UUID]) -> list[Event]:
        """Fence out whoever runs a descendant of these, now or later; they wait for their parent.

        The rows of `level` are locked. Returns the events to be recorded.
        """
        events: list[Event] = []
        while level:
            below: list[UUID] = []
            owners = lines.lock_children(self.connection, level)
            for chunk in lines.chunks(list(owners)):
                for row in self.connection.execute(self._raise(chunk)):
                    below.append(row.execution_id)
                    events.append(self._raised(row, owners))
            level = below
        return events

    def _raise(self, chunk: Sequence[UUID]) -> sa.Update:
        live = executions.c.status.in_(LIVE)
        return (
            sa.update(executions)
            .where(executions.c.execution_id.in_(chunk))
            .values(_TURNED)
            .values(
                status=sa.case((live, str(Status.WAITING)), else_=executions.c.status),
                error=sa.case((live, sa.null()), else_=executions.c.error),
                turned_back=self.tells,
                paused_at=self.paused_at,
                due_at=None,
            )
            .returning(*_RAISED)
        )

    def stop_children(self, step: str, visit: int) -> list[Event]:
        """Turn the live children of a fan-out back: each is queued for its own undoing."""
        fan_out = (executions.c.parent_step == step, executions.c.parent_visit == visit)
        owners = lines.lock_children(self.connection, [self.by], *fan_out)
        stopped: list[UUID] = []
        events: list[Event] = []
        for chunk in lines.chunks(list(owners)):
            update = (
                sa.update(executions)
                .where(executions.c.execution_id.in_(chunk), executions.c.status.in_(LIVE))
                .values(_TURNED)
                .values(
                    status=Status.QUEUED,
                    error=sa.null(),
                    turned_back=self.tells,
                    paused_at=self.paused_at,
                    due_at=None,
                )
                .returning(*_RAISED)
            )
            for row in self.connection.execute(update):
                stopped.append(row.execution_id)
                events.append(self._raised(row, owners))
        return events + self.raise_below(stopped)


def land(connection: sa.Connection, commit: Commit, paused_at: datetime | None) -> None:
    """Do what a commit, whose row is locked, asks of those below it."""
    token = commit.token
    tells = PARENT_FAILED if commit.tells is None else commit.tells
    turn = Turn(connection, token.execution_id, token.owner, tells, paused_at)
    if commit.raise_epochs:
        entered = Event(
            execution_id=token.execution_id,
            name=EventName.COMPENSATING,
            epoch=token.epoch,
            owner=token.owner,
            step_key=token.step_key,
            details={"failure": commit.result["failure"]["code"]},
        )
        mine = turn.raised(token.execution_id, token.epoch + 1, commit.seq)
        record(connection, [entered, mine, *turn.raise_below([token.execution_id])])
    if commit.stop_children_of is not None:
        record(connection, turn.stop_children(*commit.stop_children_of))
    if commit.undo_children_of is not None:
        connection.execute(_undo_children(commit, *commit.undo_children_of, paused_at))
    if commit.stop_children_of is not None or commit.undo_children_of is not None:
        sweeps.admit(connection, token.execution_id, 0.0)


def _undo_children(commit: Commit, step: str, visit: int, paused_at: datetime | None) -> sa.Update:
    """Queue the children of a fan-out for their own compensation."""
    return (
        sa.update(executions)
        .where(
            executions.c.parent_id == commit.token.execution_id,
            executions.c.parent_step == step,
            executions.c.parent_visit == visit,
            executions.c.phase == Phase.COMPENSATING,
            executions.c.status.in_(_UNDOABLE),
        )
        .values(
            status=Status.QUEUED,
            ended_at=None,
            dispatches=0,
            due_at=None,
            parked_reason=None,
            paused_at=paused_at,
        )
    )


def turn_back(
    connection: sa.Connection,
    execution_id: UUID,
    cause: Any,
    event: EventName,
    details: Mapping[str, Any],
    *,
    only_forward: bool,
) -> Execution:
    """See `ExecutionStore.turn_back`."""
    before = lines.lock_latest(connection, execution_id, with_parent=True)
    if before.status.ended:
        raise lines.wrong_state(before, "has ended and can't be turned back")
    settled = before.phase is Phase.COMPENSATING or before.status is Status.PARKED
    if only_forward and settled:
        return before
    if before.phase is Phase.PAST_PIVOT:
        raise lines.wrong_state(before, "has passed its pivot and only goes forward")
    status = status_when_turned(before)
    connection.execute(
        sa.update(executions)
        .where(executions.c.execution_id == before.execution_id)
        .values(_TURNED)
        .values(
            status=status,
            error=sa.null(),
            turned_back=cause,
            paused_at=None,
            due_at=now() if status is Status.ACTIVE else None,
        )
    )
    turn = Turn(connection, before.execution_id, None, PARENT_FAILED, None)
    epoch = before.epoch + 1
    told = Event(
        execution_id=before.execution_id,
        name=event,
        epoch=epoch,
        details={**details, "previous_epoch": before.epoch},
    )
    mine = turn.raised(before.execution_id, epoch, before.head_seq, before.owner)
    record(connection, [told, mine, *turn.raise_below([before.execution_id])])
    if status is Status.QUEUED and before.parent_id is not None:
        sweeps.admit(connection, before.parent_id, 0.0)
    return lines.lock(connection, before.execution_id)


def status_when_turned(before: Execution) -> Status:
    """The state from which an execution undoes its work once it is turned back."""
    if before.status is Status.WAITING and before.turned_back is not None:
        return Status.WAITING  # for its parent, which undoes in the order that it has on record
    without_place = before.status in (Status.QUEUED, Status.PARKED)
    return Status.QUEUED if without_place and before.parent_id is not None else Status.ACTIVE


def record(connection: sa.Connection, events: Sequence[Event]) -> None:
    """Append to the audit trail."""
    if events:
        values = [rows.event_values(event) for event in events]
        connection.execute(statements.INSERT_EVENT, values)
