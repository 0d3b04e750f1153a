"""One ownership of one execution: decide, do, commit, until it ends, waits or is lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, assert_never
from uuid import uuid4

from fencepost import faults, identity, serde
from fencepost.context import StepContext, TransactionalContext
from fencepost.decide import (
    PARENT_FAILED,
    EnterCompensation,
    FanOut,
    Finish,
    Join,
    Progress,
    RunStep,
    RunUndo,
    UndoFanOut,
    UndoJoin,
    decide,
    failure_record,
)
from fencepost.engine import fanout
from fencepost.engine.heartbeat import Heartbeat
from fencepost.errors import (
    CheckpointForkError,
    ExecutionLeaseLostError,
    LeaseDeadlineError,
    NeedsPerson,
    ServiceUnavailableError,
    StaleLeaseFenceError,
    Suspended,
)
from fencepost.failure import ErrorInfo, error_info
from fencepost.fence import FenceToken
from fencepost.ports import Transaction
from fencepost.records import (
    Acquired,
    Checkpoint,
    CheckpointKind,
    Commit,
    NewExecution,
    Phase,
    Status,
)
from fencepost.saga import Saga, Step

if TYPE_CHECKING:
    from fencepost.engine.core import Engine, Outcome

logger = logging.getLogger(__name__)

MAX_REFUSALS = 10
"""Refusals by a sink's fence, though the checkpoint store calls us the owner, until we park."""

REFUSED_RETRY = timedelta(seconds=1)

PARENT_STEP = "parent-failed"
"""The step under which a child records that its parent told it to undo its work."""


class Run:
    """Carries an owned execution forward.

    Args:
        engine: The ports and options.
        saga: The execution's definition.
        acquired: The row and chain as they were when it became ours.
        owner: Our name in leases, checkpoints and events.
        heart: Keeps the lease.
    """

    def __init__(
        self, engine: Engine, saga: Saga[Any, Any], acquired: Acquired, owner: str, heart: Heartbeat
    ) -> None:
        self._engine = engine
        self._store = engine.executions
        self._saga = saga
        self._execution = acquired.execution
        self._chain = list(acquired.chain)
        self._phase = acquired.execution.phase
        self._epoch = acquired.execution.epoch
        self._attempt = acquired.execution.attempt + 1
        self._owner = owner
        self._heart = heart
        self._status = Status.ACTIVE

    def to_the_end(self) -> Outcome:
        """Run until the execution has ended.

        Raises:
            Suspended: It waits, was handed on, or belongs to another.
        """
        try:
            self._park_if_poisonous()
            while self._status is Status.ACTIVE:
                self._hand_on_if_leaving()
                self._do_next()
        except LeaseDeadlineError as lost:
            self._give_up_politely(str(lost))
        except ExecutionLeaseLostError as lost:
            logger.warning("%s: %s", lost.code, lost)
            self._engine.let_go(self._heart.lease, ended=False)
            raise Suspended(str(lost)) from None
        except ServiceUnavailableError as problem:
            # The lease is left to expire: whoever takes over finds the truth in SQL.
            logger.warning("execution %s: %s", self._execution.execution_id, problem)
            raise Suspended(str(problem)) from None
        return self._end()

    def _do_next(self) -> None:
        command = decide(self._saga, self._phase, self._chain)
        match command:
            case RunStep():
                self._run_step(command)
            case RunUndo():
                self._run_undo(command)
            case FanOut():
                self._fan_out(command)
            case Join():
                self._join(command)
            case UndoFanOut():
                self._undo_fan_out(command)
            case UndoJoin():
                self._commit(CheckpointKind.UNDO, command.node.name, command.visit, None)
            case EnterCompensation():
                info = ErrorInfo(
                    error_type="", code=PARENT_FAILED, message="the parent execution failed"
                )
                self._enter_compensation(PARENT_STEP, 1, info, None)
            case Finish():
                raise CheckpointForkError("an execution that has ended was found active")
            case _:
                assert_never(command)

    # -- steps -----------------------------------------------------------------------------

    def _run_step(self, command: RunStep) -> None:
        step, visit = command.step, command.visit
        try:
            self._perform(step, step.name, visit, command.value, CheckpointKind.STEP)
        except _Failed as failed:
            self._step_failed(command, failed.error)

    def _run_undo(self, command: RunUndo) -> None:
        name, visit = command.step.name, command.visit
        try:
            self._perform(command.undo, name, visit, command.value, CheckpointKind.UNDO)
        except _Failed as failed:
            delay = command.undo.undo_retry.delay_after(self._attempt, failed.error)
            if delay is not None and not isinstance(failed.error, NeedsPerson):
                self._retry(name, visit, failed.error, delay)
            self._park(
                name,
                visit,
                f"compensation {command.undo.name!r} of step {name!r} failed"
                f" {self._attempt} times: {failed.error}",
                failed.error,
            )

    def _perform(
        self, step: Step[Any, Any], name: str, visit: int, stored: Any, kind: CheckpointKind
    ) -> None:
        """Run a body and commit its result; a body's error comes out as `_Failed`."""
        token = self._token(name, visit)
        self._heart.limit(step.timeout)
        faults.reach("step.before", step=name, kind=kind)
        try:
            with self._transaction(step, token) as transaction:
                value = serde.load(stored, step.input_type, what=f"input of step {name!r}")
                result = step.invoke(self._context(token, name, visit, transaction), value)
                data = serde.dump(result, step.output_type, what=f"result of step {name!r}")
                faults.reach("step.after", step=name, kind=kind)
                self._commit(kind, name, visit, data, transaction=transaction)
        except (ServiceUnavailableError, CheckpointForkError):
            raise
        except StaleLeaseFenceError as refused:
            # A sink has refused the write. Whether we are lost is for the checkpoint store to say.
            logger.warning("%s: %s", refused.code, refused)
            if self._attempt >= MAX_REFUSALS:
                self._park(name, visit, f"refused {self._attempt} times: {refused}", refused)
            self._retry(name, visit, refused, REFUSED_RETRY)
        except ExecutionLeaseLostError:
            raise
        except Exception as error:
            raise _Failed(error) from error
        finally:
            self._heart.limit(None)

    @contextmanager
    def _transaction(self, step: Step[Any, Any], token: FenceToken) -> Iterator[Transaction | None]:
        if not step.transactional:
            yield None
            return
        with self._store.transaction(token) as transaction:
            yield transaction

    def _context(
        self, token: FenceToken, name: str, visit: int, transaction: Transaction | None
    ) -> StepContext:
        progress = Progress(tuple(self._chain))
        facts: dict[str, Any] = {
            "execution_id": self._execution.execution_id,
            "lineage_id": self._execution.lineage_id,
            "root_id": self._execution.root_id,
            "parent_id": self._execution.parent_id,
            "step": name,
            "visit": visit,
            "attempt": self._attempt,
            "token": token,
            "saga_input": progress.start.result,
            "results": progress.results,
            "lease_lost": self._heart.lost,
        }
        if transaction is None:
            return StepContext(**facts)
        return TransactionalContext(**facts, session=transaction.session)

    def _step_failed(self, command: RunStep, error: Exception) -> None:
        step, visit = command.step, command.visit
        if isinstance(error, NeedsPerson):
            self._park(step.name, visit, error.message, error)
        delay = step.retry.delay_after(self._attempt, error)
        if delay is not None:
            self._retry(step.name, visit, error, delay)
        logger.error("step %s of %s failed: %s", step.name, self._execution.execution_id, error)
        if command.in_branch:
            info = error_info(error).model_dump(mode="json")
            record = info | {"step": step.name, "visit": visit}
            self._commit(CheckpointKind.BRANCH_FAILED, step.name, visit, record)
        else:
            self._enter_compensation(step.name, visit, error_info(error), error)

    def _enter_compensation(
        self, step: str, visit: int, info: ErrorInfo, error: Exception | None
    ) -> None:
        branch = self._saga.branch_for(error) if error is not None else None
        saga_input = self._chain[0].result
        result = {
            "failure": failure_record(saga_input, step, visit, info),
            "branch": branch.name if branch is not None else None,
        }
        self._commit(
            CheckpointKind.COMPENSATING,
            step,
            visit,
            result,
            phase=Phase.COMPENSATING,
            raise_epochs=True,
        )

    # -- fan-out ---------------------------------------------------------------------------

    def _fan_out(self, command: FanOut) -> None:
        node, visit = command.node, command.visit
        try:
            children = fanout.children_of(self._execution, node, visit, command.value)
        except Exception as error:  # noqa: BLE001 - `over` is the user's code
            self._enter_compensation(node.name, visit, error_info(error), error)
            return
        self._commit(
            CheckpointKind.FAN_OUT,
            node.name,
            visit,
            {"children": len(children)},
            children=tuple(children),
            max_concurrency=node.max_concurrency,
            waits=bool(children),
        )
        if children:
            self._engine.let_go(self._heart.lease, ended=False)
            fanout.publish(self._engine, self._execution, node, visit)
            raise Suspended(f"{len(children)} children of {node.name!r} were started")

    def _join(self, command: Join) -> None:
        node, visit = command.node, command.visit
        children = self._store.children(self._execution.execution_id, node.name, visit)
        if not all(child.status.ended for child in children):
            self._give_up_politely(f"children of {node.name!r} are still live")
        error = fanout.failure_of(node, children)
        if error is not None:
            self._enter_compensation(node.name, visit, error_info(error), error)
        else:
            results = [child.result for child in children]
            self._commit(CheckpointKind.JOIN, node.name, visit, results)

    def _undo_fan_out(self, command: UndoFanOut) -> None:
        node, visit = command.node, command.visit
        self._commit(
            CheckpointKind.UNDO_FAN_OUT,
            node.name,
            visit,
            None,
            undo_children_of=(node.name, visit),
            max_concurrency=node.max_concurrency,
            waits=True,
        )
        self._engine.let_go(self._heart.lease, ended=False)
        fanout.publish_undo(self._engine, self._execution, node, visit)
        raise Suspended(f"children of {node.name!r} undo their work")

    # -- writing ---------------------------------------------------------------------------

    def _token(self, step: str, visit: int) -> FenceToken:
        execution_id = self._execution.execution_id
        key = identity.step_key(execution_id, step, visit)
        return FenceToken(execution_id, self._epoch, self._owner, key)

    def _commit(
        self,
        kind: CheckpointKind,
        step: str,
        visit: int,
        result: Any,
        *,
        transaction: Transaction | None = None,
        waits: bool = False,
        phase: Phase | None = None,
        **also: Any,
    ) -> None:
        head = self._chain[-1]
        phase = phase or self._phase
        commit = Commit(
            checkpoint_id=uuid4(),
            token=self._token(step, visit),
            parent=head.checkpoint_id,
            seq=head.seq + 1,
            kind=kind,
            step=step,
            visit=visit,
            attempt=self._attempt,
            result=result,
            due_in=timedelta(0) if waits else self._engine.unattended,
            status=Status.WAITING if waits else Status.ACTIVE,
            phase=phase,
            **also,
        )
        if not waits:
            commit = self._with_ending(commit)
        write = self._store.commit if transaction is None else transaction.commit
        self._chain.append(write(commit))
        self._status, self._phase, self._attempt = commit.status, phase, 1
        self._execution = replace(
            self._execution, status=commit.status, result=commit.outcome, error=commit.error
        )
        if commit.raise_epochs:
            self._epoch += 1
            if not commit.status.ended:
                self._heart.raise_epoch(self._epoch)

    def _with_ending(self, commit: Commit) -> Commit:
        """Let the end ride on the last commit, so that nothing can come between the two."""
        drafted = [*self._chain, _draft(commit)]
        match decide(self._saga, commit.phase, drafted):
            case Finish(Status.CONTINUED, outcome, error):
                following = self._continuation(outcome)
                return replace(
                    commit,
                    status=Status.CONTINUED,
                    outcome={"continued_as": str(following.execution_id)},
                    error=error,
                    children=(following,),
                )
            case Finish(status, outcome, error):
                return replace(commit, status=status, outcome=outcome, error=error)
            case _:
                return commit

    def _continuation(self, value: Any) -> NewExecution:
        mine = self._execution
        return NewExecution(
            execution_id=identity.continuation_id(mine.execution_id),
            saga=mine.saga,
            version=self._saga.version,
            input=value,
            input_digest=serde.digest(value),
            lineage_id=mine.lineage_id,
            root_id=mine.root_id,
            parent_id=mine.parent_id,
            parent_step=mine.parent_step,
            parent_visit=mine.parent_visit,
            child_index=mine.child_index,
        )

    # -- leaving ---------------------------------------------------------------------------

    def _end(self) -> Outcome:
        from fencepost.engine.core import outcome_of

        self._engine.let_go(self._heart.lease, ended=True)
        self._engine.ended(self._execution)
        return outcome_of(self._execution)

    def _retry(self, step: str, visit: int, error: Exception, delay: timedelta) -> NoReturn:
        info = error_info(error).model_dump(mode="json")
        self._store.record_attempt(self._token(step, visit), self._attempt, info, delay)
        self._engine.let_go(self._heart.lease, ended=False)
        raise Suspended(f"step {step!r} is tried again in {delay.total_seconds():.1f} s: {error}")

    def _park(self, step: str, visit: int, reason: str, error: Exception | None) -> NoReturn:
        info = error_info(error).model_dump(mode="json") if error is not None else None
        self._store.park(self._token(step, visit), reason, info)
        self._engine.let_go(self._heart.lease, ended=False)
        logger.error("execution %s is parked: %s", self._execution.execution_id, reason)
        raise Suspended(f"parked: {reason}")

    def _park_if_poisonous(self) -> None:
        recoveries, limit = self._execution.recoveries, self._engine.options.max_recoveries
        if recoveries > limit:
            reason = f"taken over {recoveries} times without a new checkpoint (limit {limit})"
            self._park(self._chain[-1].step, self._chain[-1].visit, reason, None)

    def _hand_on_if_leaving(self) -> None:
        if self._heart.lost():
            self._give_up_politely("the lease can't be trusted any more")
        if self._engine.options.draining():
            self._give_up_politely("this worker is shutting down")

    def _give_up_politely(self, why: str) -> NoReturn:
        """Hand the execution on at once; fenced like every write, so a zombie learns its state."""
        last = self._chain[-1]
        try:
            token = self._token(last.step, last.visit)
            self._store.hand_back(token, self._engine.unattended)
        except ExecutionLeaseLostError as lost:
            logger.warning("%s: %s", lost.code, lost)
            raise Suspended(str(lost)) from None
        self._engine.let_go(self._heart.lease, ended=False)
        self._engine.dispatch(self._execution)
        raise Suspended(f"handed on: {why}")


class _Failed(Exception):
    """Carries a body's error out of its transaction."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _draft(commit: Commit) -> Checkpoint:
    return Checkpoint(
        checkpoint_id=commit.checkpoint_id,
        execution_id=commit.token.execution_id,
        seq=commit.seq,
        parent_checkpoint_id=commit.parent,
        kind=commit.kind,
        step=commit.step,
        visit=commit.visit,
        step_key=commit.token.step_key,
        epoch=commit.token.epoch,
        owner=commit.token.owner,
        attempt=commit.attempt,
        result=commit.result,
        created_at=datetime.now(UTC),
    )
