"""Reading annotations."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.context import StepContext
from fencepost.errors import SagaDefinitionError


@dataclass(frozen=True, slots=True)
class Signature:
    """A step function's shape."""

    takes_context: bool
    context_type: type[Any] | None
    input_type: Any
    output_type: Any


def read_signature(
    function: Callable[..., Any], name: str, context: type[Any] = StepContext
) -> Signature:
    """Read `(input) -> output` or `(ctx, input) -> output` from annotations.

    Args:
        function: A step's or task's body.
        name: Its name, for errors.
        context: What the first of two arguments has to be.

    Raises:
        SagaDefinitionError: Another shape, or a missing annotation.
    """
    try:
        hints = typing.get_type_hints(function)
    except NameError as problem:
        raise SagaDefinitionError(
            f"step {name!r}: an annotation can't be resolved: {problem}", step=name
        ) from problem
    parameters = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.default is inspect.Parameter.empty
    ]
    if len(parameters) not in (1, 2):
        raise SagaDefinitionError(
            f"step {name!r} must take (input) or (ctx, input), not {len(parameters)} arguments",
            step=name,
        )
    for parameter in parameters:
        if parameter.name not in hints:
            raise SagaDefinitionError(
                f"step {name!r}: argument {parameter.name!r} needs a type annotation", step=name
            )
    if "return" not in hints:
        raise SagaDefinitionError(f"step {name!r} needs a return annotation", step=name)
    context_type: type[Any] | None = None
    if len(parameters) == 2:
        context_type = hints[parameters[0].name]
        if not (isinstance(context_type, type) and issubclass(context_type, context)):
            raise SagaDefinitionError(
                f"step {name!r}: the first of two arguments must be a {context.__name__}",
                step=name,
            )
    return Signature(
        takes_context=context_type is not None,
        context_type=context_type,
        input_type=hints[parameters[-1].name],
        output_type=hints["return"],
    )


def item_type(declared: Any) -> Any:
    """The element type of a list, tuple, sequence or iterable annotation; None if it is none."""
    origin = typing.get_origin(declared)
    if not (isinstance(origin, type) and issubclass(origin, Iterable | Sequence)):
        return None
    arguments = [a for a in typing.get_args(declared) if a is not Ellipsis]
    return arguments[0] if len(set(arguments)) == 1 else None
