"""Running sagas: steps, choices, waits, compensation. What concerns children is in `fanout`."""

from __future__ import annotations

import logging
from typing import Any, NoReturn, assert_never

from fencepost import serde
from fencepost.commands import (
    Choose,
    EndTask,
    EnterCompensation,
    FanOut,
    Finish,
    JoinChildren,
    Reopen,
    RunBody,
    RunStep,
    RunUndo,
    UndoFanOut,
    UndoJoin,
    Wait,
    Wake,
)
from fencepost.decide import PARENT_FAILED, decide, failure_record, interrupted, told
from fencepost.engine import choices, fanout, waits
from fencepost.engine.bodies import BodyFailedError
from fencepost.engine.run import Run
from fencepost.errors import CheckpointForkError, NeedsPerson, PayloadError, StepDeadlineError
from fencepost.failure import ErrorInfo, error_info
from fencepost.progress import COMPENSATION, REOPENED
from fencepost.records import CheckpointKind, Phase
from fencepost.saga import Saga

logger = logging.getLogger(__name__)


class SagaRun(Run):
    """Carries a saga's execution forward."""

    saga: Saga[Any, Any]

    def do_next(self) -> None:
        """See `Run.do_next`."""
        own = self.own
        command = decide(self.saga, own.phase, own.chain, own.turned_back, own.directive)
        match command:
            case RunStep():
                self._run_step(command)
            case RunUndo():
                self._run_undo(command)
            case Choose():
                choices.choose(self, command)
            case Wait() | Wake():
                waits.go_on(self, command)
            case FanOut() | JoinChildren() | UndoFanOut() | UndoJoin():
                fanout.go_on(self, command)
            case Reopen():
                self._reopen(command)
            case EnterCompensation():
                self._turn_back(command)
            case Finish() | RunBody() | EndTask():
                raise CheckpointForkError("an execution that has ended was found active")
            case _:
                assert_never(command)

    def _turn_back(self, command: EnterCompensation) -> None:
        info = ErrorInfo.model_validate(command.cause)
        step = interrupted(self.saga, self.own.chain)
        if step is not None and self._completed_by_person(step, info):
            return
        self._enter_compensation(self.own.chain[-1].step, self.own.chain[-1].visit, info)

    def _completed_by_person(self, command: RunStep, cause: ErrorInfo) -> bool:
        """Whether the step in hand was completed by a person's decision, and can be undone.

        Parks over effects that it has left in the world: it isn't completed, so nothing would
        undo them.
        """
        step, visit = command.step, command.visit
        decision = self.own.directed(step.name, visit)
        if decision is not None and decision["do"] == "resolve":
            if command.pivot:
                reason = (
                    f"{step.name!r} is the pivot, and the execution was turned back before it was"
                    " completed: what it did has to be reversed by hand, and the step skipped"
                )
                self.park(step.name, visit, reason, None)
            self._as_decided(command, decision)
            return True
        if decision is not None:
            return False
        self.park_if_landed(step, visit, RuntimeError(cause.message))
        return False

    def _reopen(self, command: Reopen) -> None:
        decision = {"by": command.by, "why": command.why}
        self.own.commit(
            CheckpointKind.REOPENED, REOPENED, command.times, decision, phase=Phase.FORWARD
        )

    def _run_step(self, command: RunStep) -> None:
        step, visit = command.step, command.visit
        decision = self.own.directed(step.name, visit)
        if decision is not None:
            self._as_decided(command, decision)
            return
        try:
            self.perform_body(
                step,
                step.name,
                visit,
                command.value,
                CheckpointKind.STEP,
                phase=Phase.PAST_PIVOT if command.pivot else None,
            )
        except BodyFailedError as failed:
            self._step_failed(command, failed.error)

    def _as_decided(self, command: RunStep, decision: Any) -> None:
        """A person has decided about a step that was parked."""
        step, visit = command.step, command.visit
        if decision["do"] == "skip":
            info = ErrorInfo.model_validate(decision["error"])
            self._gone_wrong(command, info, None)
            return
        what = f"result that {decision['by']} has given for step {step.name!r}"
        try:
            result = serde.load(decision["result"], step.output_type, what=what)
            data = serde.dump(result, step.output_type, what=what)
        except PayloadError as problem:
            self.park(step.name, visit, problem.message, problem)
        phase = Phase.PAST_PIVOT if command.pivot else None
        self.own.commit(CheckpointKind.STEP, step.name, visit, data, phase=phase)

    def _run_undo(self, command: RunUndo) -> None:
        name, visit = command.step.name, command.visit
        decision = self.own.directed(name, visit)
        if decision is not None:
            how = "skipped" if decision["do"] == "skip" else "resolved"
            said = {key: decision[key] for key in ("by", "why")}
            self.own.commit(CheckpointKind.UNDO, name, visit, {how: said})
            return
        try:
            self.perform_body(command.undo, name, visit, command.value, CheckpointKind.UNDO)
        except BodyFailedError as failed:
            delay = command.undo.undo_retry.delay_after(self.own.attempt, failed.error)
            if delay is not None and not isinstance(failed.error, NeedsPerson):
                self.retry(name, visit, failed.error, delay)
            self.park(
                name,
                visit,
                f"compensation {command.undo.name!r} of step {name!r} failed"
                f" {self.own.attempt} times: {failed.error}",
                failed.error,
            )

    def _step_failed(self, command: RunStep, error: Exception) -> None:
        step, visit = command.step, command.visit
        if isinstance(error, NeedsPerson):
            self.park(step.name, visit, error.message, error)
        late = isinstance(error, StepDeadlineError)
        policy = step.pivot_retry if self.own.phase is Phase.PAST_PIVOT else step.retry
        delay = None if late else policy.delay_after(self.own.attempt, error)
        if delay is not None:
            self.retry(step.name, visit, error, delay)
        logger.error("step %s of %s failed: %s", step.name, self.own.execution.execution_id, error)
        self.park_if_landed(step, visit, error)
        self._gone_wrong(command, error_info(error), error)

    def _gone_wrong(self, command: RunStep, info: ErrorInfo, error: Exception | None) -> None:
        step, visit = command.step, command.visit
        if command.in_branch:
            record = info.model_dump(mode="json") | {"step": step.name, "visit": visit}
            self.own.commit(CheckpointKind.BRANCH_FAILED, step.name, visit, record)
        elif self.own.phase is Phase.PAST_PIVOT:
            self._park_past_pivot(step.name, visit, info.message, error)
        else:
            self._enter_compensation(step.name, visit, info, error)

    def failed(self, step: str, visit: int, error: Exception, **also: Any) -> None:
        """A node has failed for good: turn back, or park where there is no way back.

        Args:
            step: The node's name.
            visit: Of it.
            error: Decides which error branch is taken.
            **also: Further fields of the commit.
        """
        if self.own.phase is Phase.PAST_PIVOT:
            self._park_past_pivot(step, visit, str(error), error)
        self._enter_compensation(step, visit, error_info(error), error, **also)

    def _park_past_pivot(
        self, step: str, visit: int, message: str, error: Exception | None
    ) -> NoReturn:
        reason = f"{step!r} failed after the pivot, where nothing is undone: {message}"
        self.park(step, visit, reason, error)

    def _enter_compensation(
        self,
        step: str,
        visit: int,
        info: ErrorInfo,
        error: Exception | None = None,
        **also: Any,
    ) -> None:
        branch = self.saga.branch_for(error) if error is not None else None
        saga_input = self.own.chain[0].result
        result = {
            "failure": failure_record(saga_input, step, visit, info),
            "branch": branch.name if branch is not None else None,
        }
        self.own.commit(
            CheckpointKind.COMPENSATING,
            COMPENSATION,
            self._times(CheckpointKind.COMPENSATING) + 1,
            result,
            phase=Phase.COMPENSATING,
            raise_epochs=True,
            tells=told(PARENT_FAILED, "the parent execution failed"),
            **also,
        )

    def _times(self, kind: CheckpointKind) -> int:
        return sum(entry.kind is kind for entry in self.own.chain)
