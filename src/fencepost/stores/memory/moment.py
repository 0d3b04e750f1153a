"""The tables at a moment of the store's clock, and the small changes that others are made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fencepost import identity
from fencepost.errors import ExecutionNotFoundError, ExecutionStateError
from fencepost.records import Event, EventName, Execution, NewExecution, Status
from fencepost.stores.memory import waiting
from fencepost.stores.memory.tables import Row, Tables


@dataclass(frozen=True, slots=True)
class Moment:
    """Used under the store's mutex.

    Attributes:
        now: Seconds of the store's clock.
        at: The same moment.
        grace: How long a new execution's message has to arrive before the reaper looks.
    """

    tables: Tables
    now: float
    at: datetime
    grace: timedelta

    def row(self, execution_id: UUID) -> Row:
        """The row of an execution.

        Raises:
            ExecutionNotFoundError: There is none.
        """
        row = self.tables.rows.get(execution_id)
        if row is None:
            raise ExecutionNotFoundError(execution_id)
        return row

    def latest(self, execution_id: UUID) -> Row:
        """The row of an execution, or of what continues it.

        Raises:
            ExecutionNotFoundError: There is none.
        """
        row = self.row(execution_id)
        while row.execution.status is Status.CONTINUED:
            row = self.row(identity.continuation_id(row.execution.execution_id))
        return row

    def insert(self, new: NewExecution, paused_at: datetime | None = None) -> Row:
        """Add an execution, and its message's grace before the reaper looks."""
        row = self.tables.insert(new, self.at, self.now + self.grace.total_seconds())
        row.update(paused_at=paused_at)
        self.note(row, EventName.STARTED)
        if new.forked_from is not None:
            details = {"from": str(new.forked_from), "seq": len(new.prefix)}
            self.note(row, EventName.FORKED, details=details)
        return row

    def due(self, row: Row, due_in: timedelta, *, claims: int = 0) -> None:
        """Have the reaper look at it after some time."""
        row.due_at = self.now + due_in.total_seconds()
        row.claims = claims

    def admit(self, parent: Row, due_in: timedelta) -> list[Row]:
        """Activate queued children of a waiting parent, as far as its cap allows."""
        if parent.execution.status is not Status.WAITING:
            return []
        admitted = waiting.admissible(self.tables, parent)
        for row in admitted:
            row.update(status=Status.ACTIVE)
            self.due(row, due_in)
        return admitted

    def note(self, row: Row, name: EventName, **facts: Any) -> None:
        """Append an audit event about the execution as it now is."""
        execution = row.execution
        facts = {"epoch": execution.epoch, "owner": execution.owner} | facts
        event = Event(execution_id=execution.execution_id, name=name, **facts)
        self.tables.add_event(event, self.at)


def wrong_state(execution: Execution, why: str) -> ExecutionStateError:
    """The error of an operation that an execution's state doesn't allow."""
    return ExecutionStateError(
        f"execution {execution.execution_id} is {execution.status}: it {why}",
        execution_id=str(execution.execution_id),
        status=str(execution.status),
    )
