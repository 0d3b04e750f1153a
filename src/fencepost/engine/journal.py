"""A durable task's body: replaying what is on record, then running and recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencepost import serde
from fencepost.context import StepContext
from fencepost.decide import RETURN_STEP
from fencepost.durable import DurableTask
from fencepost.effects import Effect, EffectKind
from fencepost.errors import (
    CheckpointForkError,
    EffectError,
    EffectKeyConflictError,
    EffectOutsideStepError,
    EffectRefusedError,
    FenceError,
    PayloadError,
    ReplayMismatchError,
    SagaDefinitionError,
    ServiceUnavailableError,
    StepFailedError,
)
from fencepost.records import Checkpoint, CheckpointKind
from fencepost.saga import Step

if TYPE_CHECKING:
    from fencepost.engine.task_run import TaskRun

RECORDED = (CheckpointKind.STEP, CheckpointKind.STEP_FAILED)

NOT_THE_BODYS = (FenceError, ServiceUnavailableError, CheckpointForkError)
"""Errors of the run and not of the step: nothing is on record that a replay could raise again."""

RAISED_AGAIN: dict[str, type[EffectError]] = {
    kind.code: kind for kind in (EffectRefusedError, EffectKeyConflictError)
}
"""Recorded failures that a body sees as what they were; all others are `StepFailedError`."""


class Interrupted(BaseException):
    """The run can't go on.

    Derives from `BaseException`: no `except Exception` of the body is to catch it, and to go
    another way than a replay will go.

    Attributes:
        error: Why.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Mismatch(Interrupted):
    """The code doesn't do what is on record."""


class TaskJournal:
    """Implements `fencepost.durable.Journal` for one run of a body.

    Args:
        run: The run whose chain is replayed and extended.
        task: The task whose body asks.
        chain: The execution's checkpoints.
        check: Stops the body where the lease can't be trusted any more.
    """

    def __init__(
        self,
        run: TaskRun,
        task: DurableTask[Any, Any],
        chain: list[Checkpoint],
        check: Callable[[], None],
    ) -> None:
        self._run = run
        self._task = task
        self._chain = chain
        self._recorded = [
            entry for entry in chain if entry.kind in RECORDED and entry.step != RETURN_STEP
        ]
        self._next = 0
        self._visits: Counter[str] = Counter()
        self._busy = False
        self._stopped: BaseException | None = None
        self.check = check

    def run(self, step: Step[Any, Any], value: Any) -> Any:
        """See `Journal.run`."""
        self.go_on_only_if_running()
        self._check_step(step)
        try:
            return self._run_or_replay(step, value)
        except NOT_THE_BODYS as error:
            self._stopped = Interrupted(error)
            raise self._stopped from error
        except Exception:
            raise
        except BaseException as stop:
            # A bare `except:` or a `return` in a `finally` may swallow this one, too.
            self._stopped = stop
            raise

    def go_on_only_if_running(self) -> None:
        """Stop a body that has swallowed what stopped it."""
        if self._stopped is not None:
            raise self._stopped

    def _check_step(self, step: Step[Any, Any]) -> None:
        if step.name == RETURN_STEP:
            raise SagaDefinitionError(f"a step of a task can't be named {RETURN_STEP!r}")
        if self._busy:
            raise SagaDefinitionError(
                f"ctx.run({step.name}) was called while another step runs: call it from the task's"
                " body, one step after the other",
                step=step.name,
            )
        # A takeover raises the fences of what the task declares, before anything else.
        for effect in step.effects:
            if effect not in self._task.effects:
                raise self._undeclared(effect)

    def _run_or_replay(self, step: Step[Any, Any], value: Any) -> Any:
        data = serde.dump(value, step.input_type, what=f"input of step {step.name!r}")
        self._visits[step.name] += 1
        visit, digest = self._visits[step.name], serde.digest(data)
        entry = self._replay(step.name, visit, digest)
        if entry is None:
            self._busy = True
            try:
                self._run.run_recorded(step, visit, data, digest)
            finally:
                self._busy = False
            entry = self._chain[-1]
            self._recorded.append(entry)
            self._next += 1
        return _outcome(entry, step)

    def perform(self, effect: Effect[Any, Any], request: Any, key: str | None) -> Any:
        """See `Journal.perform`."""
        self.go_on_only_if_running()
        if effect not in self._task.effects:
            raise self._undeclared(effect)
        return self.run(step_for(effect, key), request)

    def _undeclared(self, effect: Effect[Any, Any]) -> EffectOutsideStepError:
        return EffectOutsideStepError(
            f"task {self._task.name!r} doesn't declare effect {effect.name!r}: add it to"
            " @task(effects=(...))",
            effect=effect.name,
        )

    def finish(self, how: str = "the body returned") -> None:
        """The body has ended: it must have come past everything that is on record.

        Args:
            how: It ended, for the error.
        """
        self.go_on_only_if_running()
        if self._next < len(self._recorded):
            raise _mismatch(self._recorded[self._next], how)

    def _replay(self, name: str, visit: int, digest: str) -> Checkpoint | None:
        if self._next == len(self._recorded):
            return None
        entry = self._recorded[self._next]
        if (entry.step, entry.visit) != (name, visit):
            raise _mismatch(entry, f"the code runs {name!r} (visit {visit})")
        if entry.result["digest"] != digest:
            raise _mismatch(entry, "the code gives it another input")
        self._next += 1
        return entry


def step_for(effect: Effect[Any, Any], key: str | None) -> Step[Any, Any]:
    """A step that does nothing but perform one effect."""

    def body(ctx: StepContext, request: Any) -> Any:
        return ctx.perform(effect, request, key=key)

    body.__annotations__ = {
        "ctx": StepContext,
        "request": effect.request_type,
        "return": effect.result_type,
    }
    transactional = effect.kind is EffectKind.TRANSACTIONAL
    return Step(body, name=effect.name, effects=(effect,), transactional=transactional)


def _outcome(entry: Checkpoint, step: Step[Any, Any]) -> Any:
    if entry.kind is CheckpointKind.STEP_FAILED:
        info = entry.result["error"]
        as_it_was = RAISED_AGAIN.get(info["code"])
        if as_it_was is not None:
            raise as_it_was(info["message"], **info["details"])
        raise StepFailedError(
            f"step {entry.step!r} failed: {info['message']}",
            step=entry.step,
            visit=entry.visit,
            error_type=info["error_type"],
            cause_code=info["code"],
            details=info["details"],
        )
    try:
        return serde.load(entry.result["value"], step.output_type, what="result")
    except PayloadError as problem:
        raise _mismatch(entry, problem.message) from problem


def _mismatch(entry: Checkpoint, instead: str) -> Mismatch:
    return Mismatch(
        ReplayMismatchError(
            f"on record is step {entry.step!r} (visit {entry.visit}), but {instead}: deploy the"
            " code that this execution was started with",
            step=entry.step,
            visit=entry.visit,
            seq=entry.seq,
        )
    )
