"""Running sagas: steps, compensation, fan-out."""

from __future__ import annotations

import logging
from typing import Any, assert_never

from fencepost.decide import (
    PARENT_FAILED,
    EnterCompensation,
    FanOut,
    Finish,
    Join,
    RunBody,
    RunStep,
    RunUndo,
    UndoFanOut,
    UndoJoin,
    decide,
    failure_record,
)
from fencepost.engine import fanout
from fencepost.engine.run import BodyFailedError, Run
from fencepost.errors import CheckpointForkError, NeedsPerson, Suspended
from fencepost.failure import ErrorInfo, error_info
from fencepost.records import CheckpointKind, Phase
from fencepost.saga import Saga

logger = logging.getLogger(__name__)

PARENT_STEP = "parent-failed"
"""The step under which a child records that its parent told it to undo its work."""


class SagaRun(Run):
    """Carries a saga's execution forward."""

    saga: Saga[Any, Any]

    def do_next(self) -> None:
        """See `Run.do_next`."""
        command = decide(self.saga, self.own.phase, self.own.chain)
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
                self.own.commit(CheckpointKind.UNDO, command.node.name, command.visit, None)
            case EnterCompensation():
                self._parent_failed()
            case Finish() | RunBody():
                self._after_the_end()
            case _:
                assert_never(command)

    def _after_the_end(self) -> None:
        # A child whose error branch had finished it, before its parent failed after all.
        compensating = self.own.phase is Phase.COMPENSATING
        if not compensating or self.own.execution.parent_id is None:
            raise CheckpointForkError("an execution that has ended was found active")
        self._parent_failed()

    def _parent_failed(self) -> None:
        info = ErrorInfo(error_type="", code=PARENT_FAILED, message="the parent execution failed")
        self._enter_compensation(PARENT_STEP, 1, info, None)

    def _run_step(self, command: RunStep) -> None:
        step, visit = command.step, command.visit
        try:
            self.perform_body(step, step.name, visit, command.value, CheckpointKind.STEP)
        except BodyFailedError as failed:
            self._step_failed(command, failed.error)

    def _run_undo(self, command: RunUndo) -> None:
        name, visit = command.step.name, command.visit
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
        delay = step.retry.delay_after(self.own.attempt, error)
        if delay is not None:
            self.retry(step.name, visit, error, delay)
        logger.error("step %s of %s failed: %s", step.name, self.own.execution.execution_id, error)
        self.park_if_landed(step, visit, error)
        if command.in_branch:
            info = error_info(error).model_dump(mode="json")
            record = info | {"step": step.name, "visit": visit}
            self.own.commit(CheckpointKind.BRANCH_FAILED, step.name, visit, record)
        else:
            self._enter_compensation(step.name, visit, error_info(error), error)

    def _enter_compensation(
        self, step: str, visit: int, info: ErrorInfo, error: Exception | None
    ) -> None:
        branch = self.saga.branch_for(error) if error is not None else None
        saga_input = self.own.chain[0].result
        result = {
            "failure": failure_record(saga_input, step, visit, info),
            "branch": branch.name if branch is not None else None,
        }
        self.own.commit(
            CheckpointKind.COMPENSATING,
            step,
            visit,
            result,
            phase=Phase.COMPENSATING,
            raise_epochs=True,
        )

    def _fan_out(self, command: FanOut) -> None:
        node, visit = command.node, command.visit
        try:
            children = fanout.children_of(self.own.execution, node, visit, command.value)
        except Exception as error:  # noqa: BLE001 - `over` is the user's code
            self._enter_compensation(node.name, visit, error_info(error), error)
            return
        self.own.commit(
            CheckpointKind.FAN_OUT,
            node.name,
            visit,
            {"children": len(children)},
            children=tuple(children),
            max_concurrency=node.max_concurrency,
            waits=bool(children),
        )
        if children:
            self.let_go()
            fanout.publish(self.engine, self.own.execution, node, visit)
            raise Suspended(f"{len(children)} children of {node.name!r} were started")

    def _join(self, command: Join) -> None:
        node, visit = command.node, command.visit
        children = self.store.children(self.own.execution.execution_id, node.name, visit)
        if not all(child.status.ended for child in children):
            self.give_up_politely(f"children of {node.name!r} are still live")
        error = fanout.failure_of(node, children)
        if error is not None:
            self._enter_compensation(node.name, visit, error_info(error), error)
        else:
            results = [child.result for child in children]
            self.own.commit(CheckpointKind.JOIN, node.name, visit, results)

    def _undo_fan_out(self, command: UndoFanOut) -> None:
        node, visit = command.node, command.visit
        self.own.commit(
            CheckpointKind.UNDO_FAN_OUT,
            node.name,
            visit,
            None,
            undo_children_of=(node.name, visit),
            max_concurrency=node.max_concurrency,
            waits=True,
        )
        self.let_go()
        fanout.publish_undo(self.engine, self.own.execution, node, visit)
        raise Suspended(f"children of {node.name!r} undo their work")
