"""`@task`: ordinary Python whose `ctx.run` and `ctx.perform` calls are checkpointed."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload
from uuid import UUID

from fencepost import serde
from fencepost.effects import Effect
from fencepost.errors import SagaDefinitionError
from fencepost.identity import check_name
from fencepost.retry import STEP_RETRIES, RetryPolicy
from fencepost.saga.steps import Step, run_to_its_end
from fencepost.saga.typecheck import read_signature
from fencepost.saga.version import VERSION_LENGTH, schema_of

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

    from fencepost.celery.handle import Handle

In = TypeVar("In")
Out = TypeVar("Out")
Value = TypeVar("Value")
Result = TypeVar("Result")


class Journal(Protocol):
    """What the engine gives a task's context."""

    def run(self, step: Step[Any, Any], value: Any) -> Any:
        """Replay or run a step."""
        ...

    def perform(self, effect: Effect[Any, Any], request: Any, key: str | None) -> Any:
        """Replay or perform an effect."""
        ...

    def check(self) -> None:
        """Stop here if the lease can't be trusted any more."""
        ...


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """What a durable task's body is given beside its input.

    The body runs from its start after every interruption: what `run` and `perform` have on
    record is returned without being done again. Between two of those calls the body must come to
    the same decisions from the same values; the clock, random numbers and the network belong
    into steps.

    Attributes:
        execution_id: The same on every worker and after every takeover.
        lineage_id: As in `StepContext`.
        root_id: As in `StepContext`.
    """

    execution_id: UUID
    lineage_id: UUID
    root_id: UUID
    journal: Journal = field(repr=False)

    @property
    def logger(self) -> logging.Logger:
        """A logger of the task."""
        return logging.getLogger("fencepost.task")

    def run(
        self,
        step: Step[Value, Result] | Callable[[Value], Result],
        value: Value,
    ) -> Result:
        """Run a step once, and return its recorded result ever after.

        Args:
            step: A step, or a plain annotated function `(value) -> result`.
            value: Its input.

        Raises:
            StepFailedError: It failed for good; raised again at every replay.
        """
        declared = step if isinstance(step, Step) else Step(step)
        result: Result = self.journal.run(declared, value)
        return result

    def perform(
        self, effect: Effect[Value, Result], request: Value, *, key: str | None = None
    ) -> Result:
        """Make an effect happen once, and return its recorded result ever after.

        Raises:
            EffectRefusedError: The sink said no; raised again at every replay.
            EffectKeyConflictError, EffectOutsideStepError, PayloadError: As in a step.
        """
        result: Result = self.journal.perform(effect, request, key)
        return result

    def check(self) -> None:
        """Stop here if the lease can't be trusted any more. Costs no I/O.

        Raises:
            LeaseDeadlineError: The local deadline has passed.
        """
        self.journal.check()


class DurableTask(Generic[In, Out]):
    """A durable task: the imperative form of a saga, without compensation.

    Attributes:
        name: Stored with every execution.
        input_type: The annotation of its input.
        output_type: The annotation of its result.
        effects: What its body may perform.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        effects: tuple[Effect[Any, Any], ...] = (),
        retry: RetryPolicy | None = None,
    ) -> None:
        self.name = check_name(name or str(getattr(function, "__name__", "")), "task")
        self.function = function
        signature = read_signature(function, self.name, TaskContext)
        if not signature.takes_context:
            raise SagaDefinitionError(f"task {self.name!r} must take (ctx: TaskContext, input)")
        self.input_type: Any = signature.input_type
        self.output_type: Any = signature.output_type
        self.effects = effects
        self.retry = retry or STEP_RETRIES
        for declared in (self.input_type, self.output_type):
            serde.adapter(declared)
        update_wrapper(self, function)

    @cached_property
    def version(self) -> str:
        """Hash of the name and types. Changed code is found by what it does at a replay."""
        shape = [self.name, schema_of(self.input_type), schema_of(self.output_type)]
        canonical = json.dumps(shape, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:VERSION_LENGTH]

    @property
    def fans_out(self) -> bool:
        """Whether it starts children: it doesn't."""
        return False

    @property
    def fenced(self) -> bool:
        """Whether it has an effect at a sink that checks fence tokens."""
        return any(effect.fence is not None for effect in self.effects)

    def descendants(self) -> Iterator[DurableTask[Any, Any]]:
        """A task has no child sagas: only itself."""
        yield self

    def invoke(self, context: TaskContext, value: Any) -> Any:
        """Run the body; an `async def` body is run to its end."""
        return run_to_its_end(self.function(context, value))

    def __call__(self, context: TaskContext, value: In) -> Any:
        """Call the plain function, as in a unit test."""
        return self.function(context, value)

    def start(
        self,
        value: In,
        *,
        key: str | None = None,
        session: Session | Connection | None = None,
    ) -> Handle[Out]:
        """Start an execution on the installed Fencepost; see `Fencepost.start`."""
        from fencepost.celery import start

        return start(self, value, key=key, session=session)

    def delay(self, value: In) -> Handle[Out]:
        """`start`, by the name that callers of a Celery task know."""
        return self.start(value)

    def __repr__(self) -> str:
        return f"<DurableTask {self.name} {self.version}>"


class TaskDecorator(Protocol):
    """What `task(...)` with options returns."""

    def __call__(self, function: Callable[[TaskContext, In], Out], /) -> DurableTask[In, Out]:
        """Declare the function."""
        ...


@overload
def task(function: Callable[[TaskContext, In], Out], /) -> DurableTask[In, Out]: ...
@overload
def task(
    *,
    name: str | None = None,
    effects: tuple[Effect[Any, Any], ...] = (),
    retry: RetryPolicy | None = None,
) -> TaskDecorator: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effects: tuple[Effect[Any, Any], ...] = (),
    retry: RetryPolicy | None = None,
) -> Any:
    """Declare `(ctx: TaskContext, input) -> output` as a durable task.

    Args:
        function: The body, when used without parentheses.
        name: The function's name by default.
        effects: What the body performs with `ctx.perform`.
        retry: For errors of the body itself; the steps that it has run are not run again.

    Raises:
        SagaDefinitionError: The function can't be a task; says why.
    """

    def wrap(body: Callable[..., Any]) -> DurableTask[Any, Any]:
        return DurableTask(body, name=name, effects=effects, retry=retry)

    return wrap if function is None else wrap(function)
