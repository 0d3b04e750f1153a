"""Whether what is given can be taken, and stored on its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

from fencepost.errors import SagaDefinitionError
from fencepost.failure import Failure
from fencepost.findings import Finding, Severity, Source, source_of
from fencepost.saga.checks import rules
from fencepost.saga.checks.walk import Layout, PathEnd, Place
from fencepost.saga.definition import Saga
from fencepost.saga.fitting import ARRAYS, OBJECTS, Fit, fit, plain
from fencepost.saga.nodes import (
    BranchNode,
    LoopNode,
    MapNode,
    StepNode,
    TerminalKind,
    WaitNode,
)
from fencepost.saga.steps import Step
from fencepost.saga.storable import has_bytes, why_not_storable
from fencepost.saga.typecheck import read_signature
from fencepost.serde import describe

BARE = (*ARRAYS, *OBJECTS, Any, object)


def check(layout: Layout) -> Iterator[Finding]:
    """All findings about a saga's types."""
    for place in layout.places:
        yield from _place(layout.saga, place)
    for end in layout.paths:
        yield from _path(end)
    yield from _branches(layout.saga)
    yield from _compensations(layout)
    yield from _stored(layout)


def _link(
    given: Any, wanted: Any, giver: str, place: str, source: Source | None
) -> Iterator[Finding]:
    fits = fit(given, wanted)
    if fits is Fit.YES:
        return
    said = f"it takes {describe(wanted)}, and {giver} gives {describe(given)}"
    if fits is Fit.NO:
        yield rules.MISMATCH.at(place, said, source=source)
    elif not _is_bare(given):
        yield rules.UNTYPED.at(place, f"{said}: that can't be checked", source=source)


def _place(saga: Saga[Any, Any], place: Place) -> Iterator[Finding]:
    node = place.node
    match node:
        case StepNode():
            source = source_of(node.step.function)
            yield from _link(place.given, node.input_type, place.giver, place.name, source)
            if node.terminal is TerminalKind.CONTINUE_AS_NEW and not place.inside:
                next_one = f"{saga.name} (the next)"
                yield from _link(node.output_type, saga.input_type, node.name, next_one, source)
        case MapNode():
            yield from _map(place, node)
        case BranchNode():
            source = source_of(node.choose)
            yield from _link(
                place.given, node.input_type, place.giver, f"{place.name} (choose)", source
            )
        case WaitNode():
            yield from _wait(place, node)


def _map(place: Place, node: MapNode) -> Iterator[Finding]:
    source = source_of(node.over)
    if node.single:
        yield from _link(place.given, node.child.input_type, place.giver, place.name, None)
        return
    over = f"{place.name} (over)"
    yield from _link(place.given, node.input_type, place.giver, over, source)
    if node.item_type is None:
        returned = _returned(node.over, over)
        yield rules.NOT_A_LIST.at(over, f"it returns {describe(returned)}", source=source)
        return
    child = f"{place.name} (saga {node.child.name})"
    yield from _link(node.item_type, node.child.input_type, over, child, source)
    if _is_bare(node.item_type):
        yield rules.UNTYPED.at(over, f"it returns a list of {describe(node.item_type)}")


def _returned(function: Callable[..., Any], name: str) -> Any:
    try:
        return read_signature(function, name).output_type
    except SagaDefinitionError:
        return Any


def _wait(place: Place, node: WaitNode) -> Iterator[Finding]:
    asked = node.at if node.at is not None else node.duration
    if not callable(asked):
        return
    wanted: Any = datetime if node.at is not None else timedelta
    source = source_of(asked)
    yield from _link(place.given, node.argument_type, place.giver, place.name, source)
    returned = plain(_returned(asked, place.name))
    if not (isinstance(returned, type) and issubclass(returned, wanted)):
        said = f"it needs a {wanted.__name__}, and its function returns {describe(returned)}"
        yield rules.MISMATCH.at(place.name, said, source=source)


def _path(end: PathEnd) -> Iterator[Finding]:
    yield from _link(end.entered, end.path.input_type, end.giver, end.name, None)
    if isinstance(end.node, LoopNode):
        again = f"{end.name} (again)"
        source = source_of(end.node.again)
        yield from _link(end.left, end.node.again_type, "a pass", again, source)
        yield from _link(end.left, end.path.input_type, "a pass", f"{end.name} (next pass)", source)


def _branches(saga: Saga[Any, Any]) -> Iterator[Finding]:
    for branch in saga.branches:
        where = f"{saga.name}/on {branch.error.__name__}"
        given, giver = _failure(saga.input_type), "the failure"
        for node in branch.nodes:
            source = source_of(node.step.function)
            yield from _link(given, node.input_type, giver, f"{where}/{node.name}", source)
            given, giver = node.output_type, node.name
        match branch.nodes[-1].terminal if branch.nodes else None:
            case TerminalKind.FINISH:
                yield from _link(given, saga.output_type, giver, f"{where} (the result)", None)
            case TerminalKind.CONTINUE_AS_NEW:
                yield from _link(given, saga.input_type, giver, f"{saga.name} (the next)", None)


def _failure(declared: Any) -> Any:
    try:
        return Failure[declared]
    except Exception:  # noqa: BLE001 - a type that pydantic can't take is reported as such
        return Failure[Any]


def _compensations(layout: Layout) -> Iterator[Finding]:
    saga = layout.saga
    own = [(step, step.compensation) for step in saga.steps if step.compensation is not None]
    declared = [pair for branch in saga.branches for pair in branch.compensations]
    for step, undo in dict.fromkeys([*own, *declared]):
        if fit(step.output_type, undo.input_type) is Fit.NO:
            yield rules.COMPENSATION.at(
                f"{saga.name}/{step.name}",
                f"its compensation {undo.name!r} takes {describe(undo.input_type)}, and the step"
                f" gives {describe(step.output_type)}",
                source=source_of(undo.function),
            )


# -- storing -------------------------------------------------------------------------------


def _stored(layout: Layout) -> Iterator[Finding]:
    saga = layout.saga
    yield from stored(saga.input_type, saga.name, "its input", given=True)
    for step in saga.steps:
        yield from stored_by_step(step, f"{saga.name}/{step.name}")
    for place in layout.places:
        signal = getattr(place.node, "signal", None)
        if signal is not None:
            yield from stored(signal.payload, place.name, "the signal's payload", given=True)
    for end in layout.paths:
        reason = why_not_storable(end.path.input_type, given=False)
        if reason is not None:
            yield rules.NOT_STORABLE.at(end.name, f"its input can't be read from JSON: {reason}")


def stored_by_step(step: Step[Any, Any], place: str) -> Iterator[Finding]:
    """What a step takes and gives can be loaded and stored."""
    source = source_of(step.function)
    yield from stored(step.input_type, place, "its input", given=False, source=source)
    yield from stored(step.output_type, place, "its result", given=True, source=source)


def stored(
    declared: Any, place: str, what: str, *, given: bool, source: Source | None = None
) -> Iterator[Finding]:
    """Whether a type can be loaded and, if it is given, stored."""
    if given and _is_bare(declared):
        yield rules.UNTYPED.at(place, f"{what} is {describe(declared)}", source=source)
        return
    reason = why_not_storable(declared, given=given)
    if reason is not None:
        said = f"{what}, {describe(declared)}, can't be stored as JSON: {reason}"
        yield rules.NOT_STORABLE.at(place, said, source=source)
    elif given and has_bytes(declared):
        yield rules.NOT_STORABLE.at(
            place,
            f"{what}, {describe(declared)}, has bytes in it; those that aren't UTF-8 can't be"
            " stored",
            fix="use a text, or a pydantic model with ser_json_bytes and val_json_bytes 'base64'",
            severity=Severity.WARNING,
            source=source,
        )


def _is_bare(declared: Any) -> bool:
    declared = plain(declared)
    return isinstance(declared, TypeVar) or any(declared is bare for bare in BARE)
