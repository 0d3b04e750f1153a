"""Running durable tasks: the body from its start, over what is on record."""

from __future__ import annotations

import logging
from typing import Any

from fencepost import serde
from fencepost.decide import RETURN_STEP, RunBody, decide
from fencepost.durable import DurableTask, TaskContext
from fencepost.engine.journal import Mismatch, TaskJournal
from fencepost.engine.run import BodyFailedError, Run
from fencepost.errors import (
    CheckpointForkError,
    FenceError,
    LeaseDeadlineError,
    NeedsPerson,
    ServiceUnavailableError,
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
        command = decide(self.saga, self.own.phase, self.own.chain)
        match command:
            case RunBody():
                self._run_body(command)
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
            value = serde.load(command.value, task.input_type, what=f"input of task {task.name!r}")
            result = task.invoke(context, value)
            journal.finish()
            data = serde.dump(result, task.output_type, what=f"result of task {task.name!r}")
        except Mismatch as mismatch:
            self.park(RETURN_STEP, 1, str(mismatch.error), mismatch.error)
        except (ServiceUnavailableError, CheckpointForkError, FenceError):
            raise
        except Exception as error:  # noqa: BLE001 - the body is the user's code
            self._body_failed(task, error)
        else:
            self.own.commit(CheckpointKind.STEP, RETURN_STEP, 1, data)

    def _body_failed(self, task: DurableTask[Any, Any], error: Exception) -> None:
        if isinstance(error, NeedsPerson):
            self.park(RETURN_STEP, 1, error.message, error)
        delay = task.retry.delay_after(self.own.attempt, error)
        if delay is not None:
            self.retry(RETURN_STEP, 1, error, delay)
        logger.error("task %s (%s) failed: %s", task.name, self.own.execution.execution_id, error)
        info = error_info(error).model_dump(mode="json")
        self.own.commit(CheckpointKind.TASK_FAILED, RETURN_STEP, 1, info)

    def run_recorded(self, step: Step[Any, Any], visit: int, data: Any, digest: str) -> None:
        """Run a step of a durable task and record what came of it, with its input's digest."""
        self.hand_on_if_leaving()
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
            delay = step.retry.delay_after(self.own.attempt, error)
            if delay is not None:
                self.retry(step.name, visit, error, delay)
            self.park_if_landed(step, visit, error)
            info = error_info(error).model_dump(mode="json")
            record = {"digest": digest, "error": info}
            self.own.commit(CheckpointKind.STEP_FAILED, step.name, visit, record)

    def _check(self) -> None:
        if self.heart.lost():
            token = self.own.last_token
            raise LeaseDeadlineError(
                token.execution_id, held=token.epoch, current=token.epoch, step_key=token.step_key
            )
