"""One ownership of one execution: decide, do, commit, until it ends, waits or is lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, assert_never

from fencepost import faults, serde
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
from fencepost.effects import EffectStatus
from fencepost.effects.model import UNKNOWN_OUTCOME
from fencepost.engine import fanout, fences
from fencepost.engine.effects import InDoubt, Performer
from fencepost.engine.heartbeat import Heartbeat
from fencepost.engine.ownership import Ownership
from fencepost.errors import (
    CheckpointForkError,
    EffectInDoubtError,
    EffectLandedError,
    ExecutionLeaseLostError,
    FenceUnavailableError,
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
    CheckpointKind,
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

MAY_HAVE_LANDED = UNKNOWN_OUTCOME | {EffectStatus.CONFIRMED}

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
        self._heart = heart
        self._own = Ownership(engine, saga, acquired, owner, heart)

    def to_the_end(self) -> Outcome:
        """Run until the execution has ended.

        Raises:
            Suspended: It waits, was handed on, or belongs to another.
        """
        try:
            self._park_if_poisonous()
            if self._own.epoch > 1 and self._saga.fenced:
                self._raise_fences()
            while self._own.status is Status.ACTIVE:
                self._hand_on_if_leaving()
                self._do_next()
        except LeaseDeadlineError as lost:
            self._give_up_politely(str(lost))
        except ExecutionLeaseLostError as lost:
            logger.warning("%s: %s", lost.code, lost)
            self._let_go()
            raise Suspended(str(lost)) from None
        except ServiceUnavailableError as problem:
            # The lease is left to expire: whoever takes over finds the truth in SQL.
            logger.warning("execution %s: %s", self._own.execution.execution_id, problem)
            raise Suspended(str(problem)) from None
        return self._end()

    def _do_next(self) -> None:
        command = decide(self._saga, self._own.phase, self._own.chain)
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
                self._own.commit(CheckpointKind.UNDO, command.node.name, command.visit, None)
            case EnterCompensation():
                self._parent_failed()
            case Finish() if self._ended_well_by_its_branch():
                self._parent_failed()
            case Finish():
                raise CheckpointForkError("an execution that has ended was found active")
            case _:
                assert_never(command)

    def _ended_well_by_its_branch(self) -> bool:
        """A child whose error branch had finished it, before its parent failed after all."""
        compensating = self._own.phase is Phase.COMPENSATING
        return compensating and self._own.execution.parent_id is not None

    def _parent_failed(self) -> None:
        info = ErrorInfo(error_type="", code=PARENT_FAILED, message="the parent execution failed")
        self._enter_compensation(PARENT_STEP, 1, info, None)

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
            delay = command.undo.undo_retry.delay_after(self._own.attempt, failed.error)
            if delay is not None and not isinstance(failed.error, NeedsPerson):
                self._retry(name, visit, failed.error, delay)
            self._park(
                name,
                visit,
                f"compensation {command.undo.name!r} of step {name!r} failed"
                f" {self._own.attempt} times: {failed.error}",
                failed.error,
            )

    def _perform(
        self, step: Step[Any, Any], name: str, visit: int, stored: Any, kind: CheckpointKind
    ) -> None:
        """Run a body and commit its result; a body's error comes out as `_Failed`."""
        token = self._own.token(name, visit)
        self._heart.limit(step.timeout)
        faults.reach("step.before", step=name, kind=kind)
        if self._heart.lost():
            # Where we stood may have been a freeze: don't start what another may be doing.
            self._give_up_politely("the lease can't be trusted any more")
        try:
            with self._transaction(step, token) as transaction:
                value = serde.load(stored, step.input_type, what=f"input of step {name!r}")
                result = step.invoke(self._context(step, token, name, visit, transaction), value)
                data = serde.dump(result, step.output_type, what=f"result of step {name!r}")
                faults.reach("step.after", step=name, kind=kind)
                self._own.commit(kind, name, visit, data, transaction=transaction)
        except (ServiceUnavailableError, CheckpointForkError):
            raise
        except StaleLeaseFenceError as refused:
            # A sink has refused the write. Whether we are lost is for the checkpoint store to say.
            logger.warning("%s: %s", refused.code, refused)
            if self._own.attempt >= MAX_REFUSALS:
                self._park(name, visit, f"refused {self._own.attempt} times: {refused}", refused)
            self._retry(name, visit, refused, REFUSED_RETRY)
        except ExecutionLeaseLostError:
            raise
        except InDoubt as doubt:
            self._in_doubt(name, visit, doubt)
        except Exception as error:
            raise _Failed(error) from error
        finally:
            self._heart.limit(None)

    def _in_doubt(self, name: str, visit: int, doubt: InDoubt) -> NoReturn:
        error = EffectInDoubtError(
            doubt.reason, effect=doubt.effect.name, sink=doubt.record.sink, key=doubt.record.key
        )
        if doubt.retry_in is not None:
            self._retry(name, visit, error, doubt.retry_in)
        self._park(name, visit, doubt.reason, error)

    def _raise_fences(self) -> None:
        """Before anything else: no late call of an earlier owner may land after ours."""
        last = self._own.chain[-1]
        try:
            fences.advance(self._engine, self._own.last_token)
        except FenceUnavailableError as problem:
            self._retry(last.step, last.visit, problem, REFUSED_RETRY)

    @contextmanager
    def _transaction(self, step: Step[Any, Any], token: FenceToken) -> Iterator[Transaction | None]:
        if not step.transactional:
            yield None
            return
        with self._store.transaction(token) as transaction:
            yield transaction

    def _context(
        self,
        step: Step[Any, Any],
        token: FenceToken,
        name: str,
        visit: int,
        transaction: Transaction | None,
    ) -> StepContext:
        progress = Progress(tuple(self._own.chain))
        performer = Performer(
            store=self._engine.effects,
            token=token,
            attempt=self._own.attempt,
            declared=step.effects,
            time_left=self._heart.time_left,
            session=transaction.session if transaction is not None else None,
        )
        facts: dict[str, Any] = {
            "execution_id": self._own.execution.execution_id,
            "lineage_id": self._own.execution.lineage_id,
            "root_id": self._own.execution.root_id,
            "parent_id": self._own.execution.parent_id,
            "step": name,
            "visit": visit,
            "attempt": self._own.attempt,
            "token": token,
            "saga_input": progress.start.result,
            "results": progress.results,
            "lease_lost": self._heart.lost,
            "performer": performer.perform,
        }
        if transaction is None:
            return StepContext(**facts)
        return TransactionalContext(**facts, session=transaction.session)

    def _step_failed(self, command: RunStep, error: Exception) -> None:
        step, visit = command.step, command.visit
        if isinstance(error, NeedsPerson):
            self._park(step.name, visit, error.message, error)
        delay = step.retry.delay_after(self._own.attempt, error)
        if delay is not None:
            self._retry(step.name, visit, error, delay)
        logger.error("step %s of %s failed: %s", step.name, self._own.execution.execution_id, error)
        self._park_if_landed(step, visit, error)
        if command.in_branch:
            info = error_info(error).model_dump(mode="json")
            record = info | {"step": step.name, "visit": visit}
            self._own.commit(CheckpointKind.BRANCH_FAILED, step.name, visit, record)
        else:
            self._enter_compensation(step.name, visit, error_info(error), error)

    def _park_if_landed(self, step: Step[Any, Any], visit: int, error: Exception) -> None:
        """A step that isn't completed isn't undone: what it left in the world is for a person."""
        if not step.effects or step.transactional:
            return
        key = self._own.token(step.name, visit).step_key
        left = [
            record
            for record in self._engine.effects.of_execution(self._own.execution.execution_id)
            if record.step_key == key and record.status in MAY_HAVE_LANDED
        ]
        if left:
            what = ", ".join(f"{record.effect} ({record.status})" for record in left)
            reason = f"step {step.name!r} failed after its effects: {what}; the error: {error}"
            self._park(step.name, visit, reason, EffectLandedError(reason))

    def _enter_compensation(
        self, step: str, visit: int, info: ErrorInfo, error: Exception | None
    ) -> None:
        branch = self._saga.branch_for(error) if error is not None else None
        saga_input = self._own.chain[0].result
        result = {
            "failure": failure_record(saga_input, step, visit, info),
            "branch": branch.name if branch is not None else None,
        }
        self._own.commit(
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
            children = fanout.children_of(self._own.execution, node, visit, command.value)
        except Exception as error:  # noqa: BLE001 - `over` is the user's code
            self._enter_compensation(node.name, visit, error_info(error), error)
            return
        self._own.commit(
            CheckpointKind.FAN_OUT,
            node.name,
            visit,
            {"children": len(children)},
            children=tuple(children),
            max_concurrency=node.max_concurrency,
            waits=bool(children),
        )
        if children:
            self._let_go()
            fanout.publish(self._engine, self._own.execution, node, visit)
            raise Suspended(f"{len(children)} children of {node.name!r} were started")

    def _join(self, command: Join) -> None:
        node, visit = command.node, command.visit
        children = self._store.children(self._own.execution.execution_id, node.name, visit)
        if not all(child.status.ended for child in children):
            self._give_up_politely(f"children of {node.name!r} are still live")
        error = fanout.failure_of(node, children)
        if error is not None:
            self._enter_compensation(node.name, visit, error_info(error), error)
        else:
            results = [child.result for child in children]
            self._own.commit(CheckpointKind.JOIN, node.name, visit, results)

    def _undo_fan_out(self, command: UndoFanOut) -> None:
        node, visit = command.node, command.visit
        self._own.commit(
            CheckpointKind.UNDO_FAN_OUT,
            node.name,
            visit,
            None,
            undo_children_of=(node.name, visit),
            max_concurrency=node.max_concurrency,
            waits=True,
        )
        self._let_go()
        fanout.publish_undo(self._engine, self._own.execution, node, visit)
        raise Suspended(f"children of {node.name!r} undo their work")

    # -- leaving ---------------------------------------------------------------------------

    def _let_go(self, *, ended: bool = False) -> None:
        # The heartbeat first: it would put a lease that has vanished back.
        self._heart.stop()
        self._engine.let_go(self._heart.lease, ended=ended)

    def _end(self) -> Outcome:
        from fencepost.engine.core import outcome_of

        self._let_go(ended=True)
        self._engine.ended(self._own.execution)
        return outcome_of(self._own.execution)

    def _retry(self, step: str, visit: int, error: Exception, delay: timedelta) -> NoReturn:
        info = error_info(error).model_dump(mode="json")
        self._store.record_attempt(self._own.token(step, visit), self._own.attempt, info, delay)
        self._let_go()
        raise Suspended(f"step {step!r} is tried again in {delay.total_seconds():.1f} s: {error}")

    def _park(self, step: str, visit: int, reason: str, error: Exception | None) -> NoReturn:
        info = error_info(error).model_dump(mode="json") if error is not None else None
        self._store.park(self._own.token(step, visit), reason, info)
        self._let_go()
        logger.error("execution %s is parked: %s", self._own.execution.execution_id, reason)
        raise Suspended(f"parked: {reason}")

    def _park_if_poisonous(self) -> None:
        recoveries, limit = self._own.execution.recoveries, self._engine.options.max_recoveries
        if recoveries > limit:
            reason = f"taken over {recoveries} times without a new checkpoint (limit {limit})"
            self._park(self._own.chain[-1].step, self._own.chain[-1].visit, reason, None)

    def _hand_on_if_leaving(self) -> None:
        if self._heart.lost():
            self._give_up_politely("the lease can't be trusted any more")
        if self._engine.options.draining():
            self._give_up_politely("this worker is shutting down")

    def _give_up_politely(self, why: str) -> NoReturn:
        """Hand the execution on at once; fenced like every write, so a zombie learns its state."""
        try:
            self._store.hand_back(self._own.last_token, self._engine.unattended)
        except ExecutionLeaseLostError as lost:
            logger.warning("%s: %s", lost.code, lost)
            raise Suspended(str(lost)) from None
        self._let_go()
        self._engine.dispatch(self._own.execution)
        raise Suspended(f"handed on: {why}")


class _Failed(Exception):
    """Carries a body's error out of its transaction."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
