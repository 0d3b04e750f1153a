"""Every error that Fencepost raises: one root, stable dotted codes, structured fields."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID


def _rebuild(
    cls: type[FencepostError], message: str, fields: dict[str, Any], state: dict[str, Any]
) -> FencepostError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    error.message = message
    error.fields = fields
    return error


class FencepostError(Exception):
    """Root of all errors.

    Attributes:
        code: Stable dotted identifier; messages may change, codes don't.
        message: One sentence for a person.
        fields: JSON-compatible facts about the error.
    """

    code: ClassVar[str] = "fencepost.error"

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields: dict[str, Any] = fields

    def __reduce__(self) -> tuple[Any, ...]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("message", "fields")}
        return _rebuild, (type(self), self.message, self.fields, state)


class ConfigurationError(FencepostError):
    """A setting is missing or contradicts the protocol."""

    code = "config.invalid"


class ServiceUnavailableError(FencepostError):
    """A server that is needed does not answer."""

    code = "service.unavailable"


class SchemaError(FencepostError):
    """The database's schema is not the one that this version needs."""

    code = "schema.out-of-date"


class SagaDefinitionError(FencepostError):
    """A saga or step is declared in a way that can't run."""

    code = "saga.invalid-definition"


class PayloadError(FencepostError):
    """A value doesn't fit its declared type, or can't be stored as JSON."""

    code = "payload.invalid"


class UnknownSagaError(FencepostError):
    """No saga of that name and version is registered in this process."""

    code = "saga.unknown"


class ExecutionNotFoundError(FencepostError):
    """There is no execution with that id."""

    code = "execution.not-found"

    def __init__(self, execution_id: UUID | str) -> None:
        super().__init__(
            f"no execution {execution_id} in this database", execution_id=str(execution_id)
        )


class BusinessKeyConflictError(FencepostError):
    """A business key was used again with a different input."""

    code = "execution.key-conflict"

    def __init__(self, saga: str, key: str, execution_id: UUID) -> None:
        super().__init__(
            f"key {key!r} of saga {saga!r} already belongs to execution {execution_id},"
            " which was started with a different input",
            saga=saga,
            key=key,
            execution_id=str(execution_id),
        )


class ExecutionStateError(FencepostError):
    """The operation doesn't fit the state that the execution is in."""

    code = "execution.wrong-state"


class ExecutionFailedError(FencepostError):
    """An execution that was waited for ended without success."""

    code = "execution.failed"


class FenceError(FencepostError):
    """A write was refused because its writer isn't the owner any more."""

    code = "fence.refused"

    def __init__(
        self, execution_id: UUID, *, held: int, current: int | None, step_key: str | None = None
    ) -> None:
        now = "the execution is gone" if current is None else f"the current epoch is {current}"
        super().__init__(
            f"execution {execution_id}: write with epoch {held} refused, {now}",
            execution_id=str(execution_id),
            held=held,
            current=current,
            step_key=step_key,
        )
        self.held = held
        self.current = current


class FenceUnavailableError(FencepostError):
    """A sink's fence could not be raised, so its execution can't go on yet."""

    code = "fence.unavailable"


class StaleLeaseFenceError(FenceError):
    """A sink refused a write that carries an old epoch (an effect inside a transaction, say)."""

    code = "fence.stale-epoch"


class ExecutionLeaseLostError(FenceError):
    """The checkpoint store refused a write: another worker owns the execution."""

    code = "execution.lease-lost"


class LeaseDeadlineError(ExecutionLeaseLostError):
    """The holder's own deadline has passed: it counts itself lost without asking anyone."""

    code = "lease.deadline-passed"


class CheckpointForkError(FencepostError):
    """The owner's view of the chain isn't the stored one. A defect, never a race."""

    code = "checkpoint.fork"


class StepFailedError(FencepostError):
    """A step of a durable task failed for good; raised into the body, and again at a replay."""

    code = "task.step-failed"


class ReplayMismatchError(FencepostError):
    """A durable task's code doesn't do what its execution has on record."""

    code = "replay.step-mismatch"


class ChildrenFailedError(FencepostError):
    """A fan-out joined, and at least one child execution did not succeed."""

    code = "saga.children-failed"


class LoopBoundError(FencepostError):
    """A loop wanted another pass after its last one."""

    code = "saga.loop-bound"


class StepDeadlineError(FencepostError):
    """A step's deadline passed before one of its attempts had succeeded."""

    code = "step.deadline-passed"


class WaitTimeoutError(FencepostError):
    """Neither the signal nor the approval that was waited for came in time."""

    code = "wait.timed-out"


class ApprovalRejectedError(FencepostError):
    """A person said no."""

    code = "approval.rejected"


class EffectError(FencepostError):
    """Something about an effect."""

    code = "effect.error"


class EffectDefinitionError(SagaDefinitionError):
    """An effect's declaration contradicts itself."""

    code = "effect.invalid-definition"


class EffectOutsideStepError(EffectError):
    """An effect was called without `ctx.perform`, or in a step that doesn't declare it."""

    code = "effect.outside-step"


class EffectKeyConflictError(EffectError):
    """A key was used again with a different request."""

    code = "effect.key-conflict"


class EffectNotFoundError(EffectError):
    """No effect is recorded under that key at that sink."""

    code = "effect.not-found"

    def __init__(self, sink: str, key: str) -> None:
        super().__init__(
            f"no effect with key {key!r} at sink {sink!r} is recorded", sink=sink, key=key
        )


class EffectRefusedError(EffectError):
    """The sink said no: nothing has landed. The cause is the error that said so."""

    code = "effect.refused"


class EffectInDoubtError(EffectError):
    """An effect's outcome is unknown, and it isn't safe to call again."""

    code = "effect.in-doubt"


class EffectLandedError(EffectError):
    """A step failed for good although an effect of its own has landed."""

    code = "effect.landed-in-failed-step"


class NeedsPerson(FencepostError):
    """Raised by a step to park its execution until a person decides."""

    code = "execution.needs-person"


class Suspended(BaseException):
    """The execution was handed on and this delivery ends without a result.

    Derives from `BaseException` so that no user's `except Exception` swallows it. It is
    translated to Celery's `Ignore` at the border.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
