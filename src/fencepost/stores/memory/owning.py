"""Owning an execution: acquiring it, extending its chain, giving it up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from fencepost import serde
from fencepost.errors import (
    BusinessKeyConflictError,
    ExecutionLeaseLostError,
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
    NewExecution,
    Refused,
    Status,
)
from fencepost.stores.memory import effects, landing, waiting
from fencepost.stores.memory.moment import Moment
from fencepost.stores.memory.tables import Row, Tables, stored
from fencepost.stores.memory.transactions import MemorySession, MemoryTransaction

_Refusal = tuple[EventName, str, type[FenceError]]
_LEASE_LOST: _Refusal = (EventName.LEASE_LOST, "checkpoint-store", ExecutionLeaseLostError)
_ZOMBIE: _Refusal = (EventName.ZOMBIE_WRITE_REJECTED, "ledger", StaleLeaseFenceError)


class Owning:
    """What an owner does, or whoever wants to become it. All under one mutex."""

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

    def acquire(
        self, execution_id: UUID, owner: str, proposed_epoch: int, due_in: timedelta
    ) -> Acquired | Refused:
        """Become the owner; see the port.

        Raises:
            ExecutionNotFoundError: There is no such execution.
        """
        with self._mutex:
            moment = self._moment()
            row = moment.row(execution_id)
            before = row.execution
            runnable = waiting.runnable(self._tables, row, moment.at)
            if not runnable or before.epoch >= proposed_epoch:
                return Refused(before.status, before.epoch)
            taken_over = before.owner is not None
            row.update(
                status=Status.ACTIVE,
                owner=owner,
                epoch=proposed_epoch,
                recoveries=before.recoveries + taken_over,
            )
            moment.due(row, due_in)
            moment.note(
                row,
                EventName.LEASE_ACQUIRED,
                details={"previous_epoch": before.epoch, "head_seq": before.head_seq},
            )
            if taken_over:
                moment.note(
                    row,
                    EventName.RECOVERED,
                    details={
                        "from_owner": before.owner,
                        "from_epoch": before.epoch,
                        "head_seq": before.head_seq,
                    },
                )
            chain = tuple(self._tables.chains[execution_id])
            return Acquired(row.execution, chain, before.owner, moment.at)

    def commit(self, commit: Commit) -> Checkpoint:
        """Extend the chain; see the port."""
        with self._mutex:
            landed = self._landed(commit)
            if landed is None:
                digest = serde.digest(commit.result)
                row = self._fence(commit.token, _LEASE_LOST, digest)
                landed = landing.extend(self._moment(), row, commit)
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
                landed = landing.extend(self._moment(), row, commit)
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

    def record_attempt(
        self, token: FenceToken, attempt: int, error: Any, retry_in: timedelta
    ) -> None:
        """Record a failed attempt and hand the execution back; see the port."""
        with self._mutex:
            details = {"attempt": attempt, "error": error, "retry_in": retry_in.total_seconds()}
            row = self._fence(token, _LEASE_LOST, serde.digest(details))
            self._moment().note(
                row, EventName.ATTEMPT_FAILED, step_key=token.step_key, details=details
            )
            row.update(owner=None, attempt=attempt, error=stored(error))
            self._moment().due(row, retry_in)

    def hand_back(self, token: FenceToken, due_in: timedelta) -> None:
        """Give the execution up without a checkpoint; see the port."""
        with self._mutex:
            row = self._fence(token, _LEASE_LOST, serde.digest({}))
            self._moment().note(row, EventName.LEASE_RELEASED)
            row.update(owner=None)
            self._moment().due(row, due_in)

    def wait_on(self, token: FenceToken) -> None:
        """Go back to waiting for what the head says; see the port."""
        with self._mutex:
            row = self._fence(token, _LEASE_LOST, serde.digest({}))
            moment = self._moment()
            moment.note(row, EventName.LEASE_RELEASED)
            row.update(owner=None, status=Status.WAITING)
            name, wake_at = row.execution.waits_for, row.execution.wake_at
            if name is not None and self._tables.pending(token.execution_id, name):
                moment.due(row, timedelta(0))
            elif wake_at is not None:
                row.due_at, row.claims = wake_at.timestamp(), 0
            elif name is not None:
                row.due_at, row.claims = None, 0
            else:
                moment.due(row, timedelta(0))

    def park(self, token: FenceToken, reason: str, error: Any) -> None:
        """Stop the execution for a person; see the port."""
        with self._mutex:
            details = {"reason": reason, "error": error}
            row = self._fence(token, _LEASE_LOST, serde.digest(details))
            self._moment().note(row, EventName.PARKED, step_key=token.step_key, details=details)
            row.update(status=Status.PARKED, owner=None, parked_reason=reason, error=stored(error))
            row.due_at = None

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

    def _landed(self, commit: Commit) -> Checkpoint | None:
        entry = self._tables.checkpoints.get(commit.checkpoint_id)
        if entry is None or entry.execution_id != commit.token.execution_id:
            return None
        return entry

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
                self._moment().insert(new)
            effects.land(self._tables, session, self._clock(), self._at())
            self.added.extend(session.added)

    def _at(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _moment(self) -> Moment:
        return Moment(self._tables, self._clock(), self._at(), self._start_grace)

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
