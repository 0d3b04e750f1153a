"""`SqlExecutionStore`: the truth, on PostgreSQL or SQLite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import exc
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from fencepost import faults, serde
from fencepost.errors import (
    BusinessKeyConflictError,
    CheckpointForkError,
    ExecutionLeaseLostError,
    ExecutionNotFoundError,
    ExecutionStateError,
    ServiceUnavailableError,
    StaleLeaseFenceError,
)
from fencepost.fence import FenceToken
from fencepost.records import (
    Acquired,
    Checkpoint,
    CheckpointKind,
    Commit,
    Event,
    EventName,
    Execution,
    NewExecution,
    Phase,
    Refused,
    Status,
)
from fencepost.stores.sql import chain, rows, schema, statements, sweeps
from fencepost.stores.sql.engine import READ, available, unavailable
from fencepost.stores.sql.transactions import SqlTransaction, StepSession
from fencepost.stores.sql.types import after

COMMIT_PATIENCE = timedelta(seconds=10)
"""How long a commit is repeated when the database doesn't answer. Repeating is harmless: a
commit that has landed is recognised by its checkpoint's id."""

WAITS_AT = {
    Phase.FORWARD: CheckpointKind.FAN_OUT,
    Phase.COMPENSATING: CheckpointKind.UNDO_FAN_OUT,
}
"""The head of an execution that waits for its children."""


class SqlExecutionStore:
    """Implements `fencepost.ports.ExecutionStore`.

    Args:
        engine: From `fencepost.stores.sql.create_engine`.
        start_grace: How long a new execution's message has to arrive before the reaper looks.
    """

    def __init__(
        self, engine: sa.Engine, *, start_grace: timedelta = timedelta(seconds=10)
    ) -> None:
        self.engine = engine
        self.grace = start_grace.total_seconds()
        self._postgresql = engine.dialect.name == "postgresql"

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction of several statements."""
        engine = self.engine
        if self._postgresql:
            engine = engine.execution_options(isolation_level="READ COMMITTED")
        with available(self.engine), engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that only reads."""
        with available(self.engine), self.engine.connect() as connection:
            yield connection.execution_options(**READ)

    def create(self, new: NewExecution, *, session: Any = None) -> tuple[Execution, bool]:
        """See `ExecutionStore.create`."""
        if session is not None:
            return self._create(session, new)
        with self.writing() as connection:
            return self._create(connection, new)

    def _create(self, connection: Any, new: NewExecution) -> tuple[Execution, bool]:
        insert = statements.create_execution(self.engine.dialect.name, self.grace)
        made = connection.execute(insert, rows.new_execution(new)).first()
        if made is not None:
            connection.execute(statements.INSERT_CHECKPOINT, rows.start_checkpoint(new))
            started = Event(execution_id=new.execution_id, name=EventName.STARTED, epoch=0)
            connection.execute(statements.INSERT_EVENT, rows.event_values(started))
        stored = chain.read_execution(connection, new.execution_id)
        digest = chain.read_digest(connection, new.execution_id)
        if stored is None or digest != new.input_digest:
            raise BusinessKeyConflictError(new.saga, new.business_key or "", new.execution_id)
        return stored, made is not None

    def get(self, execution_id: UUID) -> Execution | None:
        """See `ExecutionStore.get`."""
        with self.reading() as connection:
            return chain.read_execution(connection, execution_id)

    def chain(self, execution_id: UUID) -> tuple[Checkpoint, ...]:
        """See `ExecutionStore.chain`."""
        with self.reading() as connection:
            return chain.read_chain(connection, execution_id)

    def acquire(
        self, execution_id: UUID, owner: str, proposed_epoch: int, due_in: timedelta
    ) -> Acquired | Refused:
        """See `ExecutionStore.acquire`."""
        with self.writing() as connection:
            before = chain.lock_execution(connection, execution_id)
            if before.epoch >= proposed_epoch or not self._runnable(connection, before):
                return Refused(before.status, before.epoch)
            taken_over = before.owner is not None
            connection.execute(
                statements.take(
                    execution_id,
                    owner,
                    proposed_epoch,
                    due_in.total_seconds(),
                    taken_over=taken_over,
                )
            )
            for event in _acquisition(before, owner, proposed_epoch):
                connection.execute(statements.INSERT_EVENT, rows.event_values(event))
            now = chain.read_execution(connection, execution_id)
            assert now is not None  # its row is locked
            return Acquired(now, chain.read_chain(connection, execution_id), before.owner)

    def _runnable(self, connection: sa.Connection, execution: Execution) -> bool:
        if execution.status is Status.ACTIVE:
            return True
        if execution.status is not Status.WAITING:
            return False
        # A child that was raised by its parent waits for its turn to undo, not for its children.
        waits_at = WAITS_AT[execution.phase]
        at_fan_out = chain.head_kind(connection, execution) is waits_at
        return at_fan_out and not chain.has_live_children(connection, execution)

    def commit(self, commit: Commit) -> Checkpoint:
        """See `ExecutionStore.commit`."""
        retrying = Retrying(
            retry=retry_if_exception_type(ServiceUnavailableError),
            stop=stop_after_delay(COMMIT_PATIENCE),
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
            reraise=True,
        )
        return retrying(self._extend, commit) or self._refused_commit(commit)

    def _extend(self, commit: Commit) -> Checkpoint | None:
        faults.reach("commit.before", step=commit.step, kind=commit.kind)
        if commit.plain and self._postgresql:
            with available(self.engine), self.engine.connect() as connection:
                extended = chain.extend_in_one_statement(connection, commit)
        else:
            with self.writing() as connection:
                extended = chain.extend(connection, commit, self.grace)
        faults.reach("commit.after", step=commit.step, kind=commit.kind)
        return extended

    def _refused_commit(self, commit: Commit) -> Checkpoint:
        landed = self.landed(commit)
        if landed is not None:
            return landed
        digest = serde.digest(commit.result)
        current = self.refuse(commit.token, EventName.LEASE_LOST, "checkpoint-store", digest)
        raise _lost(commit.token, current)

    def landed(self, commit: Commit) -> Checkpoint | None:
        """The stored checkpoint of a commit whose answer was lost, if it was committed.

        Waits for the row's lock, so a commit that is still under way is seen too.
        """
        with self.writing() as connection:
            chain.lock_execution(connection, commit.token.execution_id)
            return chain.read_checkpoint(connection, commit.checkpoint_id)

    def refuse(
        self, token: FenceToken, name: EventName, sink: str, digest: str | None
    ) -> Execution:
        """Put a refused write on record; returns the execution as it now is.

        Raises:
            CheckpointForkError: The writer is the owner, so it isn't the fence that refused.
        """
        with self.writing() as connection:
            current = chain.read_execution(connection, token.execution_id)
            if current is None:
                raise ExecutionNotFoundError(token.execution_id)
            if _owns(token, current):
                raise CheckpointForkError(
                    f"execution {current.execution_id}: the owner's head isn't the stored one",
                    execution_id=str(current.execution_id),
                    step_key=token.step_key,
                    head=str(current.head),
                )
            event = chain.refusal(token, current, name, sink, digest)
            connection.execute(statements.INSERT_EVENT, rows.event_values(event))
            return current

    @contextmanager
    def transaction(self, token: FenceToken) -> Iterator[SqlTransaction]:
        """See `ExecutionStore.transaction`."""
        engine = self.engine
        if self._postgresql:
            engine = engine.execution_options(isolation_level="READ COMMITTED")
        session = StepSession(engine, expire_on_commit=False)
        transaction = SqlTransaction(self, session, token)
        try:
            yield transaction
        except exc.DBAPIError as problem:
            session.abandon()
            self._report_stale(token)
            if isinstance(problem, exc.OperationalError) or problem.connection_invalidated:
                raise unavailable(self.engine, problem) from problem
            raise
        except StaleLeaseFenceError:
            raise
        except Exception:
            session.abandon()
            self._report_stale(token)
            raise
        finally:
            session.abandon()

    def _report_stale(self, token: FenceToken) -> None:
        current = self.get(token.execution_id)
        if current is None or _owns(token, current):
            return
        self.refuse(token, EventName.ZOMBIE_WRITE_REJECTED, "ledger", None)
        raise StaleLeaseFenceError(
            token.execution_id,
            held=token.epoch,
            current=current.epoch,
            step_key=token.step_key,
        )

    def record_attempt(
        self, token: FenceToken, attempt: int, error: Any, retry_in: timedelta
    ) -> None:
        """See `ExecutionStore.record_attempt`."""
        event = Event(
            execution_id=token.execution_id,
            name=EventName.ATTEMPT_FAILED,
            epoch=token.epoch,
            owner=token.owner,
            step_key=token.step_key,
            details={"attempt": attempt, "error": error, "retry_in": retry_in.total_seconds()},
        )
        self._give_up(token, retry_in, event, attempt=attempt, error=error)

    def hand_back(self, token: FenceToken, due_in: timedelta) -> None:
        """See `ExecutionStore.hand_back`."""
        event = Event(
            execution_id=token.execution_id,
            name=EventName.LEASE_RELEASED,
            epoch=token.epoch,
            owner=token.owner,
        )
        self._give_up(token, due_in, event)

    def park(self, token: FenceToken, reason: str, error: Any) -> None:
        """See `ExecutionStore.park`."""
        event = Event(
            execution_id=token.execution_id,
            name=EventName.PARKED,
            epoch=token.epoch,
            owner=token.owner,
            step_key=token.step_key,
            details={"reason": reason, "error": error},
        )
        self._give_up(
            token, timedelta(0), event, status=Status.PARKED, parked_reason=reason, error=error
        )

    def _give_up(self, token: FenceToken, due_in: timedelta, event: Event, **values: Any) -> None:
        with self.writing() as connection:
            parameters = statements.held(token) | {"due_in": due_in.total_seconds()}
            if connection.execute(statements.hand_back(**values), parameters).rowcount == 1:
                connection.execute(statements.INSERT_EVENT, rows.event_values(event))
                return
        digest = serde.digest(dict(event.details))
        current = self.refuse(token, EventName.LEASE_LOST, "checkpoint-store", digest)
        raise _lost(token, current)

    def unpark(self, execution_id: UUID, why: str) -> Execution:
        """See `ExecutionStore.unpark`."""
        with self.writing() as connection:
            parked = chain.lock_execution(connection, execution_id)
            if parked.status is not Status.PARKED:
                raise ExecutionStateError(
                    f"execution {execution_id} is {parked.status}, not parked",
                    execution_id=str(execution_id),
                    status=str(parked.status),
                )
            connection.execute(statements.unpark(parked))
            event = Event(
                execution_id=execution_id,
                name=EventName.UNPARKED,
                epoch=parked.epoch,
                details={"why": why, "reason": parked.parked_reason},
            )
            connection.execute(statements.INSERT_EVENT, rows.event_values(event))
            now = chain.read_execution(connection, execution_id)
            assert now is not None  # its row is locked
            return now

    def record(self, event: Event) -> None:
        """See `ExecutionStore.record`."""
        with self.writing() as connection:
            connection.execute(statements.INSERT_EVENT, rows.event_values(event))

    def events(self, execution_ids: Sequence[UUID], *, after: int = 0) -> list[Event]:
        """See `ExecutionStore.events`."""
        with self.reading() as connection:
            return sweeps.read_events(connection, execution_ids, after)

    def children(self, parent_id: UUID, step: str, visit: int) -> list[Execution]:
        """See `ExecutionStore.children`."""
        with self.reading() as connection:
            return sweeps.read_children(connection, parent_id, step, visit)

    def lineage(self, execution_id: UUID) -> list[Execution]:
        """See `ExecutionStore.lineage`."""
        with self.reading() as connection:
            return sweeps.read_lineage(connection, execution_id)

    def admit(self, parent_id: UUID, due_in: timedelta) -> list[Execution]:
        """See `ExecutionStore.admit`."""
        with self.writing() as connection:
            return sweeps.admit(connection, parent_id, due_in.total_seconds())

    def claim(self, execution_ids: Sequence[UUID], hold: timedelta) -> list[Execution]:
        """See `ExecutionStore.claim`."""
        return self._claim(statements.active_among(execution_ids), hold)

    def claim_due(self, limit: int, hold: timedelta) -> list[Execution]:
        """See `ExecutionStore.claim_due`."""
        return self._claim(statements.due(limit), hold)

    def claim_joinable(self, limit: int, hold: timedelta) -> list[Execution]:
        """See `ExecutionStore.claim_joinable`."""
        return self._claim(statements.joinable(limit), hold)

    def _claim(self, which: sa.Select[Any], hold: timedelta) -> list[Execution]:
        if not self._postgresql:
            # The reapers of a fleet look all the time, and mostly find nothing. SQLite has one
            # lock for all writers, and a worker that is frozen while it holds that stops them all.
            with self.reading() as connection:
                if connection.execute(which).first() is None:
                    return []
        with self.writing() as connection:
            return sweeps.claim(connection, which, hold.total_seconds())

    def defer(self, execution_id: UUID, epoch: int, due_in: timedelta) -> None:
        """See `ExecutionStore.defer`."""
        table = schema.executions
        with self.writing() as connection:
            connection.execute(
                sa.update(table)
                .where(table.c.execution_id == execution_id, table.c.epoch == epoch)
                .where(table.c.due_at.is_not(None))
                .values(due_at=after(sa.literal(due_in.total_seconds())), dispatches=0)
            )


def _acquisition(before: Execution, owner: str, epoch: int) -> Iterator[Event]:
    yield Event(
        execution_id=before.execution_id,
        name=EventName.LEASE_ACQUIRED,
        epoch=epoch,
        owner=owner,
        details={"previous_epoch": before.epoch, "head_seq": before.head_seq},
    )
    if before.owner is not None:
        yield Event(
            execution_id=before.execution_id,
            name=EventName.RECOVERED,
            epoch=epoch,
            owner=owner,
            details={
                "from_owner": before.owner,
                "from_epoch": before.epoch,
                "head_seq": before.head_seq,
            },
        )


def _owns(token: FenceToken, execution: Execution) -> bool:
    return (execution.epoch, execution.owner) == (token.epoch, token.owner)


def _lost(token: FenceToken, current: Execution) -> ExecutionLeaseLostError:
    return ExecutionLeaseLostError(
        token.execution_id, held=token.epoch, current=current.epoch, step_key=token.step_key
    )
