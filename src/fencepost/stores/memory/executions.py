"""The execution store in memory: the fencing of the SQL store, under one mutex."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from fencepost.records import (
    Checkpoint,
    Event,
    EventName,
    Execution,
    NewExecution,
    NewSignal,
    Phase,
    SentSignal,
    Status,
)
from fencepost.stores.memory import deciding, signals, turning, waiting
from fencepost.stores.memory.owning import Owning
from fencepost.stores.memory.tables import Row, as_created
from fencepost.stores.memory.transactions import MemorySession

LONGEST_HOLD = timedelta(seconds=60)
"""Where the growing time between the reaper's looks at one execution stops."""

_ON_THEIR_WAY = (Status.QUEUED, Status.ACTIVE, Status.WAITING)


class MemoryExecutionStore(Owning):
    """Executions of one process. Thread-safe; no lock is held while user code runs.

    Args:
        clock: Wall time in seconds. Nothing becomes due but by this clock.
        start_grace: How long a new execution's message has to arrive before the reaper looks.

    Attributes:
        added: What committed sessions have written, in order.
    """

    def create(self, new: NewExecution, *, session: Any = None) -> tuple[Execution, bool]:
        """Insert an execution and the root of its chain; see the port.

        Args:
            new: What to insert.
            session: A `MemorySession`, which then inserts it at its commit.
        """
        with self._mutex:
            existing = self._existing(new)
            if existing is not None:
                return existing.execution, False
            if session is not None:
                session.new.append(new)
                return as_created(new, self._at())[0], True
            return self._moment().insert(new).execution, True

    def session(self) -> MemorySession:
        """A session of the caller's own, for `create`."""
        return MemorySession(self._land)

    def get(self, execution_id: UUID) -> Execution | None:
        """The execution's row as it is now."""
        with self._mutex:
            row = self._tables.rows.get(execution_id)
            return None if row is None else row.execution

    def chain(self, execution_id: UUID) -> tuple[Checkpoint, ...]:
        """All checkpoints, in order."""
        with self._mutex:
            return tuple(self._tables.chains.get(execution_id, ()))

    def unpark(
        self, execution_id: UUID, why: str, *, by: str = "", directive: Any = None
    ) -> Execution:
        """Let a parked execution go on; see the port."""
        with self._mutex:
            return deciding.unpark(self._moment(), execution_id, why, by, directive)

    def turn_back(
        self,
        execution_id: UUID,
        cause: Any,
        event: EventName,
        details: Mapping[str, Any],
        *,
        only_forward: bool = False,
    ) -> Execution:
        """Have an execution undo its work; see the port."""
        with self._mutex:
            moment = self._moment()
            return turning.turn_back(
                moment, execution_id, cause, event, details, only_forward=only_forward
            )

    def pause(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """Have nothing more of an execution and its descendants begun; see the port."""
        with self._mutex:
            return deciding.pause(self._moment(), execution_id, by, why)

    def resume(self, execution_id: UUID, *, by: str, why: str) -> list[Execution]:
        """Lift a pause; see the port."""
        with self._mutex:
            return deciding.resume(self._moment(), execution_id, by, why)

    def reopen(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """Let an execution go on that has failed; see the port."""
        with self._mutex:
            return deciding.reopen(self._moment(), execution_id, by, why)

    def send_signal(self, signal: NewSignal) -> tuple[SentSignal, bool]:
        """Store a signal; see the port."""
        with self._mutex:
            return signals.send(self._moment(), signal)

    def pending_signals(self, execution_id: UUID, name: str) -> list[SentSignal]:
        """Signals that can still be taken, oldest first."""
        with self._mutex:
            return self._tables.pending(execution_id, name)

    def reject_signal(self, signal_id: UUID, reason: str) -> None:
        """Have no wait take a signal."""
        with self._mutex:
            signals.reject(self._moment(), signal_id, reason)

    def record(self, event: Event) -> None:
        """Append to the audit trail."""
        with self._mutex:
            self._tables.add_event(event, self._at())

    def events(self, execution_ids: Sequence[UUID], *, after: int = 0) -> list[Event]:
        """Audit events of these executions with `event_id > after`, oldest first."""
        wanted = set(execution_ids)
        with self._mutex:
            return [e for e in self._tables.events[after:] if e.execution_id in wanted]

    def children(self, parent_id: UUID, step: str, visit: int) -> list[Execution]:
        """The latest execution of each child's line, by index."""
        with self._mutex:
            rows = self._tables.children_of(parent_id, step, visit)
            latest = {row.execution.child_index or 0: row.execution for row in rows}
            return [latest[index] for index in sorted(latest)]

    def lineage(self, execution_id: UUID) -> list[Execution]:
        """Every execution of a line and, at any depth, their children; oldest first."""
        with self._mutex:
            asked = self._tables.rows.get(execution_id)
            everything = (row.execution for row in self._tables.rows.values())
            return [e for e in everything if asked and e.root_id == asked.execution.root_id]

    def admit(self, parent_id: UUID, due_in: timedelta) -> list[Execution]:
        """Move queued children of a waiting parent into the places that are free."""
        with self._mutex:
            parent = self._tables.rows.get(parent_id)
            if parent is None:
                return []
            return [row.execution for row in self._moment().admit(parent, due_in)]

    def claim(self, execution_ids: Sequence[UUID], hold: timedelta) -> list[Execution]:
        """Of these, the active ones; hidden from `claim_due` as if it had claimed them."""
        with self._mutex:
            known = (self._tables.rows.get(execution_id) for execution_id in execution_ids)
            return self._hide([row for row in known if row and _owed(row)], hold)

    def claim_due(
        self,
        limit: int,
        hold: timedelta,
        *,
        known: Collection[tuple[str, str]] | None = None,
    ) -> list[Execution]:
        """Active executions whose time has come; twice the `hold` each time, up to a minute."""
        with self._mutex:
            due = [row for row in self._due(Status.ACTIVE) if _owed(row) and _is_known(row, known)]
            due.sort(key=lambda row: -row.execution.priority)
            return self._hide(due[:limit], hold)

    def claim_waiting(
        self,
        limit: int,
        hold: timedelta,
        *,
        known: Collection[tuple[str, str]] | None = None,
    ) -> list[Execution]:
        """Waiting executions that are runnable, or that have places to fill."""
        with self._mutex:
            moment = self._moment()
            found = [
                row
                for row in self._due(Status.WAITING)
                if (_is_known(row, known) and waiting.ready(self._tables, row, moment.at))
                or waiting.has_places(self._tables, row)
            ]
            return self._hide(found[:limit], hold)

    def overdue(self, limit: int) -> list[Execution]:
        """Executions on their way forward whose deadline has passed; paused ones too."""
        with self._mutex:
            at = self._at()
            late = [
                (row.execution.deadline_at, number, row.execution)
                for number, row in enumerate(self._tables.rows.values())
                if row.execution.deadline_at is not None
                and row.execution.deadline_at <= at
                and row.execution.phase is Phase.FORWARD
                and row.execution.status in _ON_THEIR_WAY
            ]
            return [execution for *_, execution in sorted(late, key=lambda e: e[:2])][:limit]

    def defer(self, execution_id: UUID, epoch: int, due_in: timedelta) -> None:
        """Look at this execution again after `due_in`, if its epoch is still this one."""
        with self._mutex:
            row = self._tables.rows.get(execution_id)
            if row and row.due_at is not None and row.execution.epoch == epoch:
                self._moment().due(row, due_in)

    def _hide(self, claimed: list[Row], hold: timedelta) -> list[Execution]:
        moment = self._moment()
        for row in claimed:
            doubled = hold * 2 ** min(row.claims, 16)
            moment.due(row, min(doubled, LONGEST_HOLD), claims=row.claims + 1)
        return [row.execution for row in claimed]

    def _due(self, status: Status) -> list[Row]:
        now = self._clock()
        due = [
            (row.due_at, number, row)
            for number, row in enumerate(self._tables.rows.values())
            if row.execution.status is status and row.due_at is not None and row.due_at <= now
        ]
        return [row for _, _, row in sorted(due, key=lambda entry: entry[:2])]


def _is_known(row: Row, known: Collection[tuple[str, str]] | None) -> bool:
    return known is None or (row.execution.saga, row.execution.version) in known


def _owed(row: Row) -> bool:
    return row.execution.status is Status.ACTIVE and row.execution.paused_at is None
