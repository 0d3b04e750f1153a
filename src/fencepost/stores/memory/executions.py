"""The execution store in memory: the fencing of the SQL store, under one mutex."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from fencepost import serde
from fencepost.errors import (
    BusinessKeyConflictError,
    ExecutionLeaseLostError,
    ExecutionNotFoundError,
    ExecutionStateError,
    FenceError,
    StaleLeaseFenceError,
)
from fencepost.fence import FenceToken
from fencepost.records import (
    Acquired,
    Checkpoint,
    Commit,
    Event,
    EventName,
    Execution,
    NewExecution,
    Refused,
    Status,
)
from fencepost.stores.memory import effects
from fencepost.stores.memory.landing import Landing
from fencepost.stores.memory.tables import Row, Tables, as_created, stored
from fencepost.stores.memory.transactions import MemorySession, MemoryTransaction

_Refusal = tuple[EventName, str, type[FenceError]]
_LEASE_LOST: _Refusal = (EventName.LEASE_LOST, "checkpoint-store", ExecutionLeaseLostError)
_ZOMBIE: _Refusal = (EventName.ZOMBIE_WRITE_REJECTED, "ledger", StaleLeaseFenceError)

LONGEST_HOLD = timedelta(seconds=60)
"""Where the growing time between the reaper's looks at one execution stops."""


class MemoryExecutionStore:
    """Executions of one process. Thread-safe; no lock is held while user code runs.

    Args:
        clock: Wall time in seconds. Nothing becomes due but by this clock.
        start_grace: How long a new execution's message has to arrive before the reaper looks.

    Attributes:
        added: What committed sessions have written, in order.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        start_grace: timedelta = timedelta(seconds=10),
    ) -> None:
        self._clock = clock
        self._start_grace = start_grace
        self._mutex = threading.RLock()
        self._tables = Tables()
        self.added: list[Any] = []

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
            return self._landing().insert(new).execution, True

    def get(self, execution_id: UUID) -> Execution | None:
        """The execution's row as it is now."""
        with self._mutex:
            row = self._tables.rows.get(execution_id)
            return None if row is None else row.execution

    def chain(self, execution_id: UUID) -> tuple[Checkpoint, ...]:
        """All checkpoints, in order."""
        with self._mutex:
            return tuple(self._tables.chains.get(execution_id, ()))

    def acquire(
        self, execution_id: UUID, owner: str, proposed_epoch: int, due_in: timedelta
    ) -> Acquired | Refused:
        """Become the owner; see the port.

        Raises:
            ExecutionNotFoundError: There is no such execution.
        """
        with self._mutex:
            row = self._row(execution_id)
            before = row.execution
            runnable = before.status is Status.ACTIVE or (
                before.status is Status.WAITING and self._tables.joined(row)
            )
            if not runnable or before.epoch >= proposed_epoch:
                return Refused(before.status, before.epoch)
            taken_over = before.owner is not None
            row.update(
                status=Status.ACTIVE,
                owner=owner,
                epoch=proposed_epoch,
                recoveries=before.recoveries + taken_over,
            )
            self._due(row, due_in, claims=0)
            self._note(
                row,
                EventName.LEASE_ACQUIRED,
                details={"previous_epoch": before.epoch, "head_seq": before.head_seq},
            )
            if taken_over:
                self._note(
                    row,
                    EventName.RECOVERED,
                    details={
                        "from_owner": before.owner,
                        "from_epoch": before.epoch,
                        "head_seq": before.head_seq,
                    },
                )
            chain = tuple(self._tables.chains[execution_id])
            return Acquired(row.execution, chain, before.owner)

    def commit(self, commit: Commit) -> Checkpoint:
        """Extend the chain; see the port."""
        with self._mutex:
            landed = self._landed(commit)
            if landed is None:
                digest = serde.digest(commit.result)
                row = self._fence(commit.token, _LEASE_LOST, digest)
                landed = self._landing().extend(row, commit)
            return landed

    def commit_together(self, commit: Commit, session: MemorySession) -> Checkpoint:
        """Extend the chain and apply a step's session, or refuse both."""
        with self._mutex:
            landed = self._landed(commit)
            if landed is None:
                digest = serde.digest(commit.result)
                row = self._fence(commit.token, _ZOMBIE, digest)
                for new in session.new:
                    self._existing(new)
                effects.check_free(self._tables, session)
                landed = self._landing().extend(row, commit)
                self._land(session)
            return landed

    @contextmanager
    def transaction(self, token: FenceToken) -> Iterator[MemoryTransaction]:
        """Open a transaction for a transactional step; see the port."""
        transaction = MemoryTransaction(self)
        try:
            yield transaction
        except FenceError:
            raise
        except Exception as problem:
            with self._mutex:
                try:
                    self._fence(token, _ZOMBIE)
                except StaleLeaseFenceError as fenced:
                    raise fenced from problem
            raise

    def session(self) -> MemorySession:
        """A session of the caller's own, for `create`."""
        return MemorySession(self._land)

    def record_attempt(
        self, token: FenceToken, attempt: int, error: Any, retry_in: timedelta
    ) -> None:
        """Record a failed attempt and hand the execution back; see the port."""
        with self._mutex:
            details = {"attempt": attempt, "error": error, "retry_in": retry_in.total_seconds()}
            row = self._fence(token, _LEASE_LOST, serde.digest(details))
            self._note(row, EventName.ATTEMPT_FAILED, step_key=token.step_key, details=details)
            row.update(owner=None, attempt=attempt, error=stored(error))
            self._due(row, retry_in, claims=0)

    def hand_back(self, token: FenceToken, due_in: timedelta) -> None:
        """Give the execution up without a checkpoint; see the port."""
        with self._mutex:
            row = self._fence(token, _LEASE_LOST, serde.digest({}))
            self._note(row, EventName.LEASE_RELEASED)
            row.update(owner=None)
            self._due(row, due_in, claims=0)

    def park(self, token: FenceToken, reason: str, error: Any) -> None:
        """Stop the execution for a person; see the port."""
        with self._mutex:
            details = {"reason": reason, "error": error}
            row = self._fence(token, _LEASE_LOST, serde.digest(details))
            self._note(row, EventName.PARKED, step_key=token.step_key, details=details)
            row.update(status=Status.PARKED, owner=None, parked_reason=reason, error=stored(error))
            row.due_at = None

    def unpark(self, execution_id: UUID, why: str) -> Execution:
        """Let a parked execution go on; see the port."""
        with self._mutex:
            row = self._row(execution_id)
            if row.execution.status is not Status.PARKED:
                raise ExecutionStateError(
                    f"execution {execution_id} is {row.execution.status}, not parked",
                    execution_id=str(execution_id),
                    status=str(row.execution.status),
                )
            reason = row.execution.parked_reason
            # A child goes back through its parent's cap: its place may have been filled.
            capped = row.execution.parent_id is not None
            row.update(
                status=Status.QUEUED if capped else Status.ACTIVE,
                parked_reason=None,
                error=None,
                attempt=0,
                recoveries=0,
            )
            self._due(row, timedelta(0), claims=0)
            self._note(row, EventName.UNPARKED, details={"why": why, "reason": reason})
            return row.execution

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
            return [row.execution for row in self._landing().admit(parent, due_in)]

    def claim(self, execution_ids: Sequence[UUID], hold: timedelta) -> list[Execution]:
        """Of these, the active ones; hidden from `claim_due` as if it had claimed them."""
        with self._mutex:
            known = (self._tables.rows.get(execution_id) for execution_id in execution_ids)
            claimed = [row for row in known if row and row.execution.status is Status.ACTIVE]
            for row in claimed:
                self._hide(row, hold)
            return [row.execution for row in claimed]

    def claim_due(self, limit: int, hold: timedelta) -> list[Execution]:
        """Active executions whose time has come; twice the `hold` each time, up to a minute."""
        with self._mutex:
            claimed = self._overdue(Status.ACTIVE)[:limit]
            for row in claimed:
                self._hide(row, hold)
            return [row.execution for row in claimed]

    def claim_joinable(self, limit: int, hold: timedelta) -> list[Execution]:
        """Waiting parents whose children have all ended, or that have places to fill."""
        with self._mutex:
            claimed = [
                row
                for row in self._overdue(Status.WAITING)
                if self._tables.joined(row) or self._tables.admissible(row)
            ][:limit]
            for row in claimed:
                self._hide(row, hold)
            return [row.execution for row in claimed]

    def defer(self, execution_id: UUID, epoch: int, due_in: timedelta) -> None:
        """Look at this execution again after `due_in`, if its epoch is still this one."""
        with self._mutex:
            row = self._tables.rows.get(execution_id)
            if row and row.due_at is not None and row.execution.epoch == epoch:
                self._due(row, due_in, claims=0)

    @contextmanager
    def locked(self) -> Iterator[tuple[Tables, float, datetime]]:
        """The tables, held against everyone else, and the time: seconds and moment."""
        with self._mutex:
            yield self._tables, self._clock(), self._at()

    @contextmanager
    def owned(
        self, token: FenceToken, sink: str, digest: str
    ) -> Iterator[tuple[Tables, float, datetime]]:
        """The same for what the owner writes beside the chain.

        Raises:
            ExecutionLeaseLostError: Fenced; on record as a write to that sink.
        """
        with self.locked() as held:
            self._fence(token, (EventName.LEASE_LOST, sink, ExecutionLeaseLostError), digest)
            yield held

    def _at(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _due(self, row: Row, due_in: timedelta, *, claims: int | None = None) -> None:
        row.due_at = self._clock() + due_in.total_seconds()
        row.claims = row.claims if claims is None else claims

    def _hide(self, row: Row, hold: timedelta) -> None:
        doubled = hold * 2 ** min(row.claims, 16)
        self._due(row, min(doubled, LONGEST_HOLD), claims=row.claims + 1)

    def _overdue(self, status: Status) -> list[Row]:
        now = self._clock()
        due = [
            (row.due_at, number, row)
            for number, row in enumerate(self._tables.rows.values())
            if row.execution.status is status and row.due_at is not None and row.due_at <= now
        ]
        return [row for _, _, row in sorted(due, key=lambda entry: entry[:2])]

    def _row(self, execution_id: UUID) -> Row:
        row = self._tables.rows.get(execution_id)
        if row is None:
            raise ExecutionNotFoundError(execution_id)
        return row

    def _existing(self, new: NewExecution) -> Row | None:
        row = self._tables.rows.get(new.execution_id)
        if row is not None and row.input_digest != new.input_digest:
            raise BusinessKeyConflictError(
                new.saga, new.business_key or str(new.execution_id), new.execution_id
            )
        return row

    def _land(self, session: MemorySession) -> None:
        with self._mutex:
            missing = [new for new in session.new if self._existing(new) is None]
            for new in missing:
                self._landing().insert(new)
            effects.land(self._tables, session, self._clock(), self._at())
            self.added.extend(session.added)

    def _landed(self, commit: Commit) -> Checkpoint | None:
        entry = self._tables.checkpoints.get(commit.checkpoint_id)
        if entry is None or entry.execution_id != commit.token.execution_id:
            return None
        return entry

    def _landing(self) -> Landing:
        return Landing(self._tables, self._clock(), self._at(), self._start_grace)

    def _note(self, row: Row, name: EventName, **facts: Any) -> None:
        self._landing().note(row, name, **facts)

    def _fence(self, token: FenceToken, refusal: _Refusal, digest: str | None = None) -> Row:
        row = self._tables.rows.get(token.execution_id)
        epoch = owner = None
        if row is not None:
            epoch, owner = row.execution.epoch, row.execution.owner
            if (epoch, owner) == (token.epoch, token.owner):
                return row
        name, sink, error = refusal
        refused = Event(
            execution_id=token.execution_id,
            name=name,
            epoch=token.epoch,
            current_epoch=epoch,
            owner=token.owner,
            current_owner=owner,
            step_key=token.step_key,
            sink=sink,
            payload_digest=digest,
        )
        self._tables.add_event(refused, self._at())
        raise error(token.execution_id, held=token.epoch, current=epoch, step_key=token.step_key)
