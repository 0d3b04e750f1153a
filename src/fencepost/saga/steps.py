"""`@step`: a function with its name, types, retries, deadline and compensation."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from fencepost import serde
from fencepost.context import StepContext, TransactionalContext
from fencepost.effects.model import EffectKind
from fencepost.errors import SagaDefinitionError
from fencepost.identity import check_name
from fencepost.retry import STEP_RETRIES, UNDO_RETRIES, RetryPolicy
from fencepost.saga.typecheck import fits, read_signature

if TYPE_CHECKING:
    from fencepost.effects.declaration import Effect

In = TypeVar("In")
Out = TypeVar("Out")
Context = TypeVar("Context", bound=StepContext)


class Step(Generic[In, Out]):
    """A named unit of work. Calling it calls the function, without any bookkeeping.

    Attributes:
        name: Unique in a saga; part of the step key, so renaming it makes another step.
        input_type: The annotation of its input.
        output_type: The annotation of its result.
        transactional: Effect and checkpoint are one transaction on the ledger's database.
        timeout: A step that runs longer loses its lease; None for no limit.
        compensation: The step that undoes this one; it is given this one's recorded result.
        effects: What the step may perform.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | None = None,
        transactional: bool = False,
        compensate: Step[Any, Any] | None = None,
        effects: Sequence[Effect[Any, Any]] = (),
    ) -> None:
        self.name = check_name(name or str(getattr(function, "__name__", "")), "step")
        self.function = function
        signature = read_signature(function, self.name)
        self.takes_context = signature.takes_context
        self.input_type: Any = signature.input_type
        self.output_type: Any = signature.output_type
        self.transactional = transactional
        self.timeout = timeout
        self.compensation = compensate
        self.effects = tuple(effects)
        self._retry = retry
        self._check(signature.context_type)
        update_wrapper(self, function)

    def _check(self, context_type: type[StepContext] | None) -> None:
        wants_session = context_type is not None and issubclass(context_type, TransactionalContext)
        if wants_session and not self.transactional:
            raise SagaDefinitionError(
                f"step {self.name!r} takes a TransactionalContext: declare it with"
                " @step(transactional=True)",
                step=self.name,
            )
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise SagaDefinitionError(f"step {self.name!r}: timeout must be positive")
        for declared in (self.input_type, self.output_type):
            serde.adapter(declared)
        if self.compensation is not None:
            check_compensation(self, self.compensation)
        for declared_effect in self.effects:
            self._check_effect(declared_effect)

    def _check_effect(self, effect: Effect[Any, Any]) -> None:
        kind = getattr(effect, "kind", None)
        if kind is None:
            raise SagaDefinitionError(
                f"step {self.name!r}: effects=[...] takes what @effect has declared, not"
                f" {effect!r:.60}",
                step=self.name,
            )
        if self.transactional is not (kind is EffectKind.TRANSACTIONAL):
            needed = "transactional" if self.transactional else "other"
            raise SagaDefinitionError(
                f"step {self.name!r} is {'' if self.transactional else 'not '}transactional, and"
                f" can only have {needed} effects; {effect.name!r} is {kind}",
                step=self.name,
                effect=effect.name,
            )

    @property
    def retry(self) -> RetryPolicy:
        """How the step is retried when it runs forward."""
        return self._retry or STEP_RETRIES

    @property
    def undo_retry(self) -> RetryPolicy:
        """How the step is retried when it runs as a compensation."""
        return self._retry or UNDO_RETRIES

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


def check_compensation(step: Step[Any, Any], undo: Step[Any, Any]) -> None:
    """A compensation must take what its step returns.

    Raises:
        SagaDefinitionError: It doesn't.
    """
    if not isinstance(undo, Step):
        raise SagaDefinitionError(
            f"compensation of step {step.name!r} must be a function decorated with @step",
            step=step.name,
        )
    if not fits(step.output_type, undo.input_type):
        raise SagaDefinitionError(
            f"compensation {undo.name!r} takes {serde.describe(undo.input_type)}, but step"
            f" {step.name!r} returns {serde.describe(step.output_type)}",
            step=step.name,
            compensation=undo.name,
        )


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
    transactional: bool = False,
    compensate: Step[Any, Any] | None = None,
    effects: Sequence[Effect[Any, Any]] = (),
) -> StepDecorator: ...
def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: RetryPolicy | None = None,
    timeout: timedelta | None = None,
    transactional: bool = False,
    compensate: Step[Any, Any] | None = None,
    effects: Sequence[Effect[Any, Any]] = (),
) -> Any:
    """Declare a function `(input) -> output` or `(ctx, input) -> output` as a step.

    Args:
        function: The body, when used without parentheses.
        name: Its name in sagas and step keys; the function's name by default.
        retry: Attempts and back-off. By default connection and time-out errors are tried three
            times in all; a compensation is tried ten times whatever it raises.
        timeout: Longest run of one attempt. Past it the lease isn't renewed any more, and what
            the attempt still writes is fenced.
        transactional: Give the body `ctx.session`, and commit effect and checkpoint together.
        compensate: The step that undoes this one, given this one's recorded result. It may run
            again after a crash, so it must be repeatable.
        effects: What the step performs with `ctx.perform`.

    Raises:
        SagaDefinitionError: The function can't be a step; says why.
    """

    def wrap(body: Callable[..., Any]) -> Step[Any, Any]:
        return Step(
            body,
            name=name,
            retry=retry,
            timeout=timeout,
            transactional=transactional,
            compensate=compensate,
            effects=effects,
        )

    return wrap if function is None else wrap(function)
