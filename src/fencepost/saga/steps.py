"""`@step`: a function with its name, types, retries, deadline and compensation."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from enum import Enum
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from fencepost.context import StepContext
from fencepost.errors import SagaDefinitionError
from fencepost.identity import check_name
from fencepost.limits import Limit
from fencepost.retry import PIVOT_RETRIES, STEP_RETRIES, UNDO_RETRIES, RetryPolicy
from fencepost.saga.typecheck import read_signature

if TYPE_CHECKING:
    from fencepost.effects.declaration import Effect

In = TypeVar("In")
Out = TypeVar("Out")
Context = TypeVar("Context", bound=StepContext)


class Stays(Enum):
    """See `STAYS`."""

    STAYS = "stays"


STAYS = Stays.STAYS
"""Declared as a step's compensation: what it does in the world is meant to stay, come what may."""


class Step(Generic[In, Out]):
    """A named unit of work. Calling it calls the function, without any bookkeeping.

    Attributes:
        name: Unique in a saga; part of the step key, so renaming it makes another step.
        input_type: The annotation of its input.
        output_type: The annotation of its result.
        transactional: Effect and checkpoint are one transaction on the ledger's database.
        context_type: What its body takes as its first of two arguments; None if it takes one.
        timeout: An attempt that runs longer loses its lease; None for no limit.
        deadline: For all attempts together; None for no limit.
        compensation: The step that undoes this one; it is given this one's recorded result.
        stays: There is no compensation on purpose.
        effects: What the step may perform.
        queue: Where it runs; None for the saga's queue.
        limit: How many may run, or begin, across the fleet.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | None = None,
        deadline: timedelta | None = None,
        transactional: bool = False,
        compensate: Step[Any, Any] | Stays | None = None,
        effects: Sequence[Effect[Any, Any]] = (),
        queue: str | None = None,
        limit: Limit | None = None,
    ) -> None:
        self.name = check_name(name or str(getattr(function, "__name__", "")), "step")
        self.function = function
        signature = read_signature(function, self.name)
        self.takes_context = signature.takes_context
        self.input_type: Any = signature.input_type
        self.output_type: Any = signature.output_type
        self.context_type = signature.context_type
        self.transactional = transactional
        for span in (timeout, deadline):
            if span is not None and span <= timedelta(0):
                raise SagaDefinitionError(
                    f"step {self.name!r}: timeout and deadline must be positive", step=self.name
                )
        self.timeout = timeout
        self.deadline = deadline
        if not isinstance(compensate, Step | Stays | None):
            raise SagaDefinitionError(
                f"compensation of step {self.name!r} must be a function decorated with @step",
                step=self.name,
            )
        self.stays = compensate is STAYS
        self.compensation = compensate if isinstance(compensate, Step) else None
        self.effects = tuple(effects)
        for effect in self.effects:
            if getattr(effect, "kind", None) is None:
                raise SagaDefinitionError(
                    f"step {self.name!r}: effects=[...] takes what @effect has declared, not"
                    f" {effect!r:.60}",
                    step=self.name,
                )
        self.queue = queue
        self.limit = limit
        self._retry = retry
        update_wrapper(self, function)

    @property
    def retry(self) -> RetryPolicy:
        """How the step is retried when it runs forward."""
        return self._retry or STEP_RETRIES

    @property
    def undo_retry(self) -> RetryPolicy:
        """How the step is retried when it runs as a compensation."""
        return self._retry or UNDO_RETRIES

    @property
    def pivot_retry(self) -> RetryPolicy:
        """How the step is retried after the pivot."""
        return self._retry or PIVOT_RETRIES

    def __call__(self, *arguments: Any) -> Any:
        """Call the plain function, as in a unit test."""
        return self.function(*arguments)

    def invoke(self, context: StepContext, value: Any) -> Any:
        """Run the body with what it declares; an `async def` body is run to its end."""
        arguments = (context, value) if self.takes_context else (value,)
        return run_to_its_end(self.function(*arguments))

    def __repr__(self) -> str:
        return f"<Step {self.name}>"


def run_to_its_end(result: Any) -> Any:
    """The value of a coroutine, or the value itself.

    Inside of a running event loop (a step of an `async def` task) the coroutine gets a loop of its
    own in another thread; what belongs to the outer loop can't be used in it.
    """
    if not inspect.iscoroutine(result):
        return result
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(result)
    with ThreadPoolExecutor(max_workers=1) as elsewhere:
        return elsewhere.submit(asyncio.run, result).result()


class StepDecorator(Protocol):
    """What `step(...)` with options returns."""

    @overload
    def __call__(
        self, function: Callable[[Context, In], Coroutine[Any, Any, Out]], /
    ) -> Step[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[In], Coroutine[Any, Any, Out]], /) -> Step[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[Context, In], Out], /) -> Step[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[In], Out], /) -> Step[In, Out]: ...


# An `async def` body is run to its end: a saga sees what it returns. Tried first, because a
# coroutine is an `Out` too.
@overload
def step(function: Callable[[Context, In], Coroutine[Any, Any, Out]], /) -> Step[In, Out]: ...
@overload
def step(function: Callable[[In], Coroutine[Any, Any, Out]], /) -> Step[In, Out]: ...
@overload
def step(function: Callable[[Context, In], Out], /) -> Step[In, Out]: ...
@overload
def step(function: Callable[[In], Out], /) -> Step[In, Out]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: RetryPolicy | None = None,
    timeout: timedelta | None = None,
    deadline: timedelta | None = None,
    transactional: bool = False,
    compensate: Step[Any, Any] | Stays | None = None,
    effects: Sequence[Effect[Any, Any]] = (),
    queue: str | None = None,
    limit: Limit | None = None,
) -> StepDecorator: ...
def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: RetryPolicy | None = None,
    timeout: timedelta | None = None,
    deadline: timedelta | None = None,
    transactional: bool = False,
    compensate: Step[Any, Any] | Stays | None = None,
    effects: Sequence[Effect[Any, Any]] = (),
    queue: str | None = None,
    limit: Limit | None = None,
) -> Any:
    """Declare a function `(input) -> output` or `(ctx, input) -> output` as a step.

    Args:
        function: The body, when used without parentheses.
        name: Its name in sagas and step keys; the function's name by default.
        retry: Attempts and back-off. By default connection and time-out errors are tried three
            times in all; a compensation is tried ten times whatever it raises.
        timeout: Longest run of one attempt. Past it the lease isn't renewed any more, and what
            the attempt still writes is fenced.
        deadline: For all attempts together, from when the execution came to the step, by the
            database's clock. Past it the step fails for good with a `StepDeadlineError`.
        transactional: Give the body `ctx.session`, and commit effect and checkpoint together.
        compensate: The step that undoes this one, given this one's recorded result. It may run
            again after a crash, so it must be repeatable. `STAYS` says that there is none, on
            purpose.
        effects: What the step performs with `ctx.perform`.
        queue: Where it runs, if not where the saga runs. Getting there is one message.
        limit: How many may run at once, or begin in a while, across the fleet.

    Raises:
        SagaDefinitionError: The function can't be a step; says why.
    """

    def wrap(body: Callable[..., Any]) -> Step[Any, Any]:
        return Step(
            body,
            name=name,
            retry=retry,
            timeout=timeout,
            deadline=deadline,
            transactional=transactional,
            compensate=compensate,
            effects=effects,
            queue=queue,
            limit=limit,
        )

    return wrap if function is None else wrap(function)
