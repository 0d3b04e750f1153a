"""Running durable tasks: the body from its start, over what is on record."""

from __future__ import annotations

import logging
from typing import Any

from fencepost import serde
from fencepost.commands import EndTask, RunBody
from fencepost.decide import RETURN_STEP, decide
from fencepost.durable import DurableTask, TaskContext
from fencepost.engine.bodies import BodyFailedError
from fencepost.engine.journal import NOT_THE_BODYS, RECORDED, Interrupted, Mismatch, TaskJournal
from fencepost.engine.run import MAY_HAVE_LANDED, Run
from fencepost.errors import (
    CheckpointForkError,
    LeaseDeadlineError,
    NeedsPerson,
    PayloadError,
    StepDeadlineError,
)
from fencepost.failure import error_info
from fencepost.records import CheckpointKind
from fencepost.saga import Step

logger = logging.getLogger(__name__)


class TaskRun(Run):
    """Carries a durable task's execution forward."""

    saga: DurableTask[Any, Any]

    def do_next(self) -> None:
        """See `Run.do_next`."""
        command = decide(self.saga, self.own.phase, self.own.chain, self.own.turned_back)
        match command:
            case RunBody():
                self._run_body(command)
            case EndTask():
                self._park_over_effects(self.saga, "was turned back")
                self.own.commit(CheckpointKind.TASK_FAILED, RETURN_STEP, 1, command.cause)
            case _:
                raise CheckpointForkError(f"a durable task can't {type(command).__name__}")

    def _run_body(self, command: RunBody) -> None:
        task, mine = command.task, self.own.execution
        journal = TaskJournal(self, task, self.own.chain, self._check)
        context = TaskContext(
            execution_id=mine.execution_id,
            lineage_id=mine.lineage_id,
            root_id=mine.root_id,
            journal=journal,
        )
        try:
            kind, result = self._end_of_body(journal, context, command)
        except Mismatch as mismatch:
            self.park(RETURN_STEP, 1, str(mismatch.error), mismatch.error)
        except Interrupted as interrupted:
            raise interrupted.error from None
        self._park_over_effects(task, "has returned" if kind is CheckpointKind.STEP else "failed")
        self.own.commit(kind, RETURN_STEP, 1, result)

    def _park_over_effects(self, task: DurableTask[Any, Any], how: str) -> None:
        """An earlier run may have come to an effect that this one's code didn't come to again."""
        if not task.effects:
            return
        recorded = {entry.step_key for entry in self.own.chain if entry.kind in RECORDED}
        left = [
            record
            for record in self.engine.effects.of_execution(self.own.execution.execution_id)
            if record.status in MAY_HAVE_LANDED and record.step_key not in recorded
        ]
        self.park_over(left, set(), RETURN_STEP, 1, f"task {task.name!r} {how}")

    def _end_of_body(
        self, journal: TaskJournal, context: TaskContext, command: RunBody
    ) -> tuple[CheckpointKind, Any]:
        task = command.task
        try:
            value = serde.load(command.value, task.input_type, what=f"input of task {task.name!r}")
            result = task.invoke(context, value)
            journal.finish()
            data = serde.dump(result, task.output_type, what=f"result of task {task.name!r}")
        except NOT_THE_BODYS:
            raise
        except Exception as error:  # noqa: BLE001 - the body is the user's code
            journal.go_on_only_if_running()
            return CheckpointKind.TASK_FAILED, self._failure_of_body(task, journal, error)
        return CheckpointKind.STEP, data

    def _failure_of_body(
        self, task: DurableTask[Any, Any], journal: TaskJournal, error: Exception
    ) -> Any:
        delay = task.retry.delay_after(self.own.attempt, error)
        if delay is not None:
            self.retry(RETURN_STEP, 1, error, delay)
        journal.finish(f"the body raised {type(error).__name__}: {error}")
        if isinstance(error, NeedsPerson):
            self.park(RETURN_STEP, 1, error.message, error)
        logger.error("task %s (%s) failed: %s", task.name, self.own.execution.execution_id, error)
        return error_info(error).model_dump(mode="json")

    def run_recorded(self, step: Step[Any, Any], visit: int, data: Any, digest: str) -> None:
        """Run a step of a durable task and record what came of it, with its input's digest."""
        self.hand_on_if_leaving()
        decision = self.own.directed(step.name, visit)
        if decision is not None:
            self._as_decided(step, visit, digest, decision)
            return
        try:
            self.perform_body(
                step,
                step.name,
                visit,
                data,
                CheckpointKind.STEP,
                record=lambda result: {"digest": digest, "value": result},
            )
        except BodyFailedError as failed:
            error = failed.error
            if isinstance(error, NeedsPerson):
                self.park(step.name, visit, error.message, error)
            late = isinstance(error, StepDeadlineError)
            delay = None if late else step.retry.delay_after(self.own.attempt, error)
            if delay is not None:
                self.retry(step.name, visit, error, delay)
            self.park_if_landed(step, visit, error)
            info = error_info(error).model_dump(mode="json")
            record = {"digest": digest, "error": info}
            self.own.commit(CheckpointKind.STEP_FAILED, step.name, visit, record)

    def _as_decided(self, step: Step[Any, Any], visit: int, digest: str, decision: Any) -> None:
        """A person has decided about a step that was parked."""
        if decision["do"] == "skip":
            record = {"digest": digest, "error": decision["error"]}
            self.own.commit(CheckpointKind.STEP_FAILED, step.name, visit, record)
            return
        what = f"result that {decision['by']} has given for step {step.name!r}"
        try:
            result = serde.load(decision["result"], step.output_type, what=what)
            data = serde.dump(result, step.output_type, what=what)
        except PayloadError as problem:
            self.park(step.name, visit, problem.message, problem)
        self.own.commit(CheckpointKind.STEP, step.name, visit, {"digest": digest, "value": data})

    def _check(self) -> None:
        if self.heart.lost():
            token = self.own.last_token
            raise LeaseDeadlineError(
                token.execution_id, held=token.epoch, current=token.epoch, step_key=token.step_key
            )
