"""The limit store in memory, over the execution store's tables and under its mutex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from fencepost.limits import LATE, PRESENT, Limit, Usage, next_start
from fencepost.records import Execution, Status
from fencepost.stores.memory.tables import Tables

if TYPE_CHECKING:
    from fencepost.stores.memory.executions import MemoryExecutionStore


@dataclass(slots=True)
class _Permit:
    """See the table `fencepost_permits`."""

    execution_id: UUID
    head: UUID
    attempt: int
    asked_at: datetime
    starts_at: datetime | None = None
    begun_at: datetime | None = None

    def counts(self, tables: Tables) -> bool:
        """Whether it is of the attempt in hand."""
        return _is_current(tables, self.execution_id, self.head, self.attempt)


@dataclass(slots=True)
class _Line:
    """Who has a permit for a resource, and who waits for one, in the order of their asking."""

    permits: dict[UUID, _Permit] = field(default_factory=dict)
    next_at: datetime | None = None


class MemoryLimitStore:
    """Implements `fencepost.ports.LimitStore`, by the executions' clock.

    Args:
        executions: The store of the executions. All that use it share one limit store.
    """

    def __init__(self, executions: MemoryExecutionStore) -> None:
        self._executions = executions
        self._lines: dict[str, _Line] = {}

    def take(
        self, execution_id: UUID, resource: str, limit: Limit, *, head: UUID, attempt: int
    ) -> timedelta | None:
        """See `LimitStore.take`."""
        with self._executions.locked() as (tables, _, at):
            turn = self._turn(tables, at, resource, limit)
            if not _is_current(tables, execution_id, head, attempt):
                return None
            permit = turn.enter(_Permit(execution_id, head, attempt, at))
            if permit.begun_at is not None:
                return timedelta(0)
            given = turn.give()
            given.pop(execution_id, None)
            turn.call(given)
            if permit.starts_at is None:
                return None
            if permit.starts_at <= at:
                permit.begun_at = at
            return max(timedelta(0), permit.starts_at - at)

    def serve(self, resource: str, limit: Limit) -> list[Execution]:
        """See `LimitStore.serve`. Those whose start is later than now are due at that time."""
        with self._executions.locked() as (tables, _, at):
            turn = self._turn(tables, at, resource, limit)
            given = turn.give()
            turn.call(given)
            line = turn.line
            if not line.permits and (line.next_at is None or line.next_at <= at):
                del self._lines[resource]
            return [tables.rows[of].execution for of, start in given.items() if start <= at]

    def usage(self) -> list[Usage]:
        """What each resource is used by that anybody uses or waits for, by name."""
        with self._executions.locked() as (tables, _, _):
            found: list[Usage] = []
            for resource, line in sorted(self._lines.items()):
                counted = [permit for permit in line.permits.values() if permit.counts(tables)]
                if counted:
                    running = sum(permit.starts_at is not None for permit in counted)
                    found.append(Usage(resource, running, len(counted) - running))
            return found

    def _turn(self, tables: Tables, at: datetime, resource: str, limit: Limit) -> _Turn:
        turn = _Turn(tables, at, limit, self._lines.setdefault(resource, _Line()))
        turn.tidy()
        return turn


@dataclass(frozen=True, slots=True)
class _Turn:
    """A line at a moment, under the mutex."""

    tables: Tables
    at: datetime
    limit: Limit
    line: _Line

    def tidy(self) -> None:
        """Delete what doesn't count any more, and free the places of those who don't come."""
        line = self.line
        gone = [permit for permit in line.permits.values() if not permit.counts(self.tables)]
        for permit in gone:
            del line.permits[permit.execution_id]
        if self.limit.rate is not None:
            given_up = [permit.starts_at for permit in gone if permit.starts_at is not None]
            starts = (permit.starts_at for permit in line.permits.values())
            kept = max((start for start in starts if start is not None), default=None)
            line.next_at = next_start(line.next_at, given_up, kept, self.at)
        for permit in line.permits.values():
            if permit.starts_at is not None and self._is_idle(permit, permit.starts_at):
                permit.starts_at = permit.begun_at = None

    def _is_idle(self, permit: _Permit, start: datetime) -> bool:
        execution = self.tables.rows[permit.execution_id].execution
        overdue = start < self.at - PRESENT
        if execution.owner is None:
            return overdue or execution.paused_at is not None
        return overdue and permit.begun_at is None

    def enter(self, asked: _Permit) -> _Permit:
        """Come to the end of the line, or be found in it."""
        permit = self.line.permits.setdefault(asked.execution_id, asked)
        permit.asked_at = self.at
        start = permit.starts_at
        missed = start is not None and start < self.at - LATE and permit.begun_at is None
        if missed and self.limit.rate is not None:
            permit.starts_at = None
        return permit

    def give(self) -> dict[UUID, datetime]:
        """Give starts to those who wait longest, as far as there are places."""
        permits = self.line.permits.values()
        waiting = [permit for permit in permits if self._may_be_called(permit)]
        if self.limit.concurrency is not None:
            placed = sum(permit.starts_at is not None for permit in permits)
            waiting = waiting[: max(0, self.limit.concurrency - placed)]
        given: dict[UUID, datetime] = {}
        for permit in waiting:
            permit.starts_at = given[permit.execution_id] = self._start()
        return given

    def _may_be_called(self, permit: _Permit) -> bool:
        if permit.starts_at is not None or permit.asked_at <= self.at - PRESENT:
            return False
        return self.tables.rows[permit.execution_id].execution.paused_at is None

    def _start(self) -> datetime:
        if self.limit.rate is None:
            return self.at
        start = max(self.at, self.line.next_at or self.at)
        self.line.next_at = start + self.limit.spacing()
        return start

    def call(self, given: Mapping[UUID, datetime]) -> None:
        """Make those due at their start whom nobody owns."""
        for execution_id, start in given.items():
            row = self.tables.rows[execution_id]
            if row.execution.owner is None:
                row.due_at, row.claims = start.timestamp(), 0


def _is_current(tables: Tables, execution_id: UUID, head: UUID, attempt: int) -> bool:
    row = tables.rows.get(execution_id)
    if row is None or row.execution.turned_back is not None:
        return False
    execution = row.execution
    as_asked = (execution.head, execution.attempt) == (head, attempt)
    return as_asked and execution.status is Status.ACTIVE
