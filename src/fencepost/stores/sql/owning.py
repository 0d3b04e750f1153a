"""Owning an execution: acquiring it, extending its chain, giving it up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import exc
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from fencepost import faults, serde
from fencepost.errors import (
    CheckpointForkError,
    ExecutionLeaseLostError,
    ExecutionNotFoundError,
    ServiceUnavailableError,
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
    Refused,
    Status,
)
from fencepost.stores.sql import chain, lines, rows, schema, signals, statements, waiting
from fencepost.stores.sql.base import SqlStore
from fencepost.stores.sql.engine import available, unavailable
from fencepost.stores.sql.transactions import SqlTransaction, StepSession

COMMIT_PATIENCE = timedelta(seconds=10)
"""How long a commit is repeated when the database doesn't answer. Repeating is harmless: a
commit that has landed is recognised by its checkpoint's id."""


class Owning(SqlStore):
    """What an owner does, or whoever wants to become it."""

    def acquire(
        self, execution_id: UUID, owner: str, proposed_epoch: int, due_in: timedelta
    ) -> Acquired | Refused:
        """See `ExecutionStore.acquire`."""
        with self.writing() as connection:
            before = lines.lock(connection, execution_id)
            if before.epoch >= proposed_epoch or not waiting.runnable(connection, before):
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
            now, at = chain.read_with_time(connection, execution_id)
            return Acquired(now, chain.read_chain(connection, execution_id), before.owner, at)

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
        if commit.plain and self.postgresql:
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
            lines.lock(connection, commit.token.execution_id)
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
        if self.postgresql:
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
        with self.reading() as connection:
            current = chain.read_execution(connection, token.execution_id)
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
        self._give_up(token, due_in, _released(token))

    def wait_on(self, token: FenceToken) -> None:
        """See `ExecutionStore.wait_on`."""
        with self.writing() as connection:
            waits = statements.wait_on().returning(schema.executions.c.waits_for)
            row = connection.execute(waits, statements.held(token)).first()
            if row is not None:
                if row.waits_for is not None:
                    signals.wake_if_here(connection, token.execution_id, row.waits_for)
                connection.execute(statements.INSERT_EVENT, rows.event_values(_released(token)))
                return
        digest = serde.digest({})
        current = self.refuse(token, EventName.LEASE_LOST, "checkpoint-store", digest)
        raise _lost(token, current)

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


def _released(token: FenceToken) -> Event:
    return Event(
        execution_id=token.execution_id,
        name=EventName.LEASE_RELEASED,
        epoch=token.epoch,
        owner=token.owner,
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
