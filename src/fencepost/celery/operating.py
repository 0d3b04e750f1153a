"""What people do with executions, as methods of `Fencepost`. Each is audited: who, and why."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fencepost.celery.handle import Handle
from fencepost.engine.forking import THE_SAME
from fencepost.engine.operations import Operations
from fencepost.engine.refusals import said
from fencepost.engine.repinning import Left, Moved, Repinned, repin, target
from fencepost.records import Status
from fencepost.stores.sql import SqlExecutionStore
from fencepost.stores.sql.inflight import InFlight, SqlRepins, in_flight
from fencepost.stores.sql.pruning import PRUNABLE, Pruned, prune

if TYPE_CHECKING:
    from fencepost.engine import Engine
    from fencepost.engine.registry import Registry
    from fencepost.records import Execution, SentSignal
    from fencepost.saga import Signal


class Operating(ABC):
    """The operations on a fleet's executions.

    They write to the database, and hold with the whole fleet down. What they let go on is
    dispatched at once; should that fail, the reapers find it within about a second.

    Attributes:
        registry: The sagas that this process knows.
    """

    registry: Registry

    @property
    @abstractmethod
    def engine(self) -> Engine:
        """The engine of this process."""

    @property
    def _store(self) -> SqlExecutionStore:
        store = self.engine.executions
        assert isinstance(store, SqlExecutionStore)  # the only kind that a Fencepost makes
        return store

    @property
    def _operations(self) -> Operations:
        engine = self.engine
        return Operations(engine.executions, engine.effects, self.registry.find)

    def _dispatched(self, execution: Execution) -> Execution:
        if execution.status is Status.ACTIVE and execution.paused_at is None:
            self.engine.dispatch(execution)
        return execution

    def cancel(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """Have an execution, or what continues it, undo its work and end.

        Whoever runs it is fenced at once. Its descendants undo their work, too. One that is
        cancelled while it undoes its work begins to undo once more, with what is left.

        Args:
            execution_id: Whose.
            by: Who decides.
            why: Kept in the audit trail, and in the error with which it ends.

        Raises:
            ExecutionNotFoundError: There is no such execution.
            ExecutionStateError: It has ended or passed its pivot; or the outcome of an effect is
                not known, of it or of a child, that is parked over it.
        """
        return self._dispatched(self._operations.cancel(execution_id, by=by, why=why))

    def pause(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """Have nothing more of an execution and its descendants begun.

        A step that runs runs on, and is committed; who runs it looks once a second whether it is
        paused, and may begin shorter steps until then. Deadlines and time-outs go on, too.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None, or it has ended.
        """
        return self._operations.pause(execution_id, by=by, why=why)

    def resume(self, execution_id: UUID, *, by: str, why: str) -> list[Execution]:
        """Lift a pause; returns those of the execution and its descendants that are now due.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None, or it isn't paused.
        """
        due = self._operations.resume(execution_id, by=by, why=why)
        for execution in due:
            self.engine.dispatch(execution)
        return due

    def retry(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """Let a parked execution go on; or a saga that has failed with nothing to undo.

        Raises:
            ExecutionNotFoundError: There is no such execution.
            ExecutionStateError: It is in another state; says what can be done instead.
        """
        return self._dispatched(self._operations.retry(execution_id, by=by, why=why))

    def skip(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """Leave the step at which an execution is parked as it is.

        On the way forward the step counts as failed (what it did was reversed by hand), and what
        came before it is undone; the body of a durable task is told that it failed. In
        compensation the step counts as undone, though it isn't.

        Raises:
            ExecutionNotFoundError: There is no such execution.
            ExecutionStateError: It isn't parked, has passed its pivot, its effects are in doubt,
                or what it is parked at can't be skipped.
        """
        return self._dispatched(self._operations.skip(execution_id, by=by, why=why))

    def resolve_step(
        self, execution_id: UUID, result: Any = None, *, by: str, why: str
    ) -> Execution:
        """Give the result of the step at which an execution is parked: it was done by hand.

        Args:
            execution_id: Whose.
            result: JSON-compatible; held to the step's type where this process knows the saga.
                For a compensation it means nothing.
            by: Who decides.
            why: Kept in the audit trail.

        Raises:
            ExecutionNotFoundError: There is no such execution.
            ExecutionStateError: It isn't parked, its effects are in doubt, or what it is parked
                at has no result.
            PayloadError: The result isn't of the step's type.
        """
        return self._dispatched(self._operations.resolve_step(execution_id, result, by=by, why=why))

    def signal(
        self,
        execution_id: UUID,
        signal: Signal[Any] | str,
        payload: Any = None,
        *,
        key: str | None = None,
        by: str = "",
    ) -> SentSignal:
        """Send a signal to an execution, or to what continues it.

        It is kept until a wait takes it.

        Args:
            execution_id: Whose.
            signal: Declared, or its name.
            payload: Held to the signal's type; for a name, to that of the saga's wait, where this
                process knows the saga.
            key: A second signal of that name with the same key is not stored.
            by: Who sends it.

        Returns:
            What is stored: with a key that was used before, the first signal with it.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None, or it has ended.
            PayloadError: The payload isn't of the type, or a name or key can't be used.
        """
        sent = self._operations.signal(execution_id, signal, payload, key=key, by=by)
        if sent.wanted_now:
            self.engine.dispatch(sent.execution)
        return sent.signal

    def approve(self, execution_id: UUID, name: str, *, by: str, why: str) -> SentSignal:
        """Say yes to the approval of that name.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None; it has ended; or somebody has said
                no already.
            PayloadError: The name can't be an approval's.
        """
        sent = self._operations.approve(execution_id, name, by=by, why=why)
        if sent.wanted_now:
            self.engine.dispatch(sent.execution)
        return sent.signal

    def reject(self, execution_id: UUID, name: str, *, by: str, why: str) -> SentSignal:
        """Say no to the approval of that name: the saga fails there, and undoes its work.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None; it has ended; or somebody has said
                yes already.
            PayloadError: The name can't be an approval's.
        """
        sent = self._operations.reject(execution_id, name, by=by, why=why)
        if sent.wanted_now:
            self.engine.dispatch(sent.execution)
        return sent.signal

    def fork(
        self,
        execution_id: UUID,
        *,
        at: int | None = None,
        input: Any = THE_SAME,  # noqa: A002 - shadows a builtin: it is what it is
        by: str,
        why: str,
    ) -> Handle[Any]:
        """Start an execution of the same saga and version that begins where another one was.

        Its chain begins with the other's entries up to `at`: they count as done, and are never
        undone by the fork. All that comes after them is done again, under new step keys: an effect
        that the original has performed there is performed a second time, unless it has a business
        key of its own.

        Args:
            execution_id: Whose.
            at: The last entry that comes along; 0 for none. By default everything that it had
                done when it failed.
            input: Instead of the original's input. What comes along was computed from that one.
            by: Who decides.
            why: Kept in the audit trail.

        Raises:
            ExecutionNotFoundError: There is no such execution.
            ExecutionStateError: What would come along was undone, may yet be, or can't be the
                beginning of a chain; says what can.
            PayloadError: The input isn't of the saga's input type.
        """
        fork = self._operations.fork(execution_id, at=at, input=input, by=by, why=why)
        self._dispatched(fork)
        saga = self.registry.find(fork.saga, fork.version)
        output = object if saga is None else saga.output_type
        return Handle(self, fork.execution_id, output, created=True)

    def prune(
        self,
        older_than: timedelta,
        *,
        statuses: Collection[Status] = PRUNABLE,
        by: str,
        why: str,
        dry_run: bool = False,
        progress: Callable[[Pruned], None] = lambda _: None,
    ) -> Pruned:
        """Delete runs that have ended: whole families, with their chains, effects and events.

        A run with anything live or parked, or with an effect in doubt, stays. Keys and effects are
        forgotten: a business key that is used again starts anew, and is performed again.

        Args:
            older_than: Since the end of the last execution of a run.
            statuses: How the execution that was started, or what continued it, has ended.
            by: Who decides.
            why: Kept in the audit trail, as one event of the execution with the nil UUID.
            dry_run: Only count.
            progress: Told after each transaction.

        Raises:
            PayloadError: The age is negative, or one of the statuses is no end.
            ServiceUnavailableError: The database doesn't answer. What is deleted is audited.
        """
        said(by, why)
        return prune(
            self._store,
            older_than,
            statuses=statuses,
            by=by,
            why=why,
            dry_run=dry_run,
            progress=progress,
        )

    def in_flight(self) -> list[InFlight]:
        """The live executions by saga and version, and whether this process knows those."""
        return in_flight(self._store, {(saga.name, saga.version) for saga in self.registry})

    def repin(
        self,
        saga: str,
        *,
        to: str | None = None,
        from_version: str | None = None,
        by: str,
        why: str,
        dry_run: bool = False,
        progress: Callable[[Moved | Left], None] = lambda _: None,
    ) -> Repinned:
        """Move live executions of a saga to a version that is registered here, where they fit it.

        One fits if it doesn't undo its work, everything on its record is come past in the same
        order, and what is on record is of the types that the version reads it as. Whoever runs it
        is fenced; the step in hand is run again, as after a takeover.

        Args:
            saga: Its name.
            to: The version; needed if several are registered.
            from_version: Only those of this version.
            by: Who decides.
            why: Kept in the audit trail.
            dry_run: Only look.
            progress: Told after each execution.

        Raises:
            UnknownSagaError: None of that name and version is registered.
            PayloadError: Several versions are, and none was named.
        """
        said(by, why)
        definition = target(self.registry, saga, to)
        moved: list[UUID] = []
        left: list[Left] = []
        for outcome in repin(
            SqlRepins(self._store),
            definition,
            from_version=from_version,
            by=by,
            why=why,
            dry_run=dry_run,
        ):
            if isinstance(outcome, Left):
                left.append(outcome)
            else:
                moved.append(outcome.execution.execution_id)
                if not dry_run:
                    self._dispatched(outcome.execution)
            progress(outcome)
        return Repinned(saga, definition.version, dry_run, tuple(moved), tuple(left))
