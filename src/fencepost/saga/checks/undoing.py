"""What is undone, on which error, and up to where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fencepost.findings import Finding, Severity, source_of
from fencepost.saga.branches import ErrorBranch
from fencepost.saga.checks import rules
from fencepost.saga.checks.walk import Layout, Place
from fencepost.saga.definition import Saga
from fencepost.saga.joins import Collect
from fencepost.saga.nodes import LoopNode, MapNode, Node, StepNode, WaitKind, WaitNode, flattened
from fencepost.saga.steps import Step


def check(layout: Layout, *, child: bool) -> Iterator[Finding]:
    """All findings about error branches, compensations and the pivot.

    Args:
        layout: The saga.
        child: Whether others may have it undo its work after its end.
    """
    yield from _branches(layout.saga)
    yield from _undo_of_undo(layout)
    yield from _effects(layout, child=child)
    yield from _pivots(layout)
    for place in layout.places:
        if isinstance(place.node, MapNode):
            yield from _pivot_in_child(place, place.node)
        if place.past_pivot:
            yield from _past_pivot(layout.saga, place)


# -- error branches ------------------------------------------------------------------------


def _branches(saga: Saga[Any, Any]) -> Iterator[Finding]:
    for number, branch in enumerate(saga.branches):
        where = f"{saga.name}/on {branch.error.__name__}"
        for earlier in saga.branches[:number]:
            if issubclass(branch.error, earlier.error):
                said = f"the branch for {earlier.error.__name__} comes first and takes its errors"
                yield rules.UNREACHABLE.at(where, said)
                break
        yield from _declared_undos(saga, branch, where)
    yield from _left_out(saga)


def _declared_undos(
    saga: Saga[Any, Any], branch: ErrorBranch[Any, Any], where: str
) -> Iterator[Finding]:
    own = {node.step for node in flattened(saga.nodes) if isinstance(node, StepNode)}
    seen: dict[Step[Any, Any], Step[Any, Any]] = {}
    for step, undo in branch.compensations:
        if step not in own:
            yield rules.UNKNOWN_STEP.at(where, f"saga {saga.name!r} has no step {step.name!r}")
        other = step.compensation or seen.get(step)
        if step.stays:
            said = f"it undoes {step.name!r} with {undo.name!r}, and the step says STAYS"
            yield rules.UNDO_CONFLICT.at(where, said)
        elif other is not None and other is not undo:
            said = f"it undoes {step.name!r} with {undo.name!r}, and {other.name!r} is declared too"
            yield rules.UNDO_CONFLICT.at(where, said, source=source_of(undo.function))
        seen.setdefault(step, undo)


def _left_out(saga: Saga[Any, Any]) -> Iterator[Finding]:
    declared: Mapping[int, set[Step[Any, Any]]] = {
        id(branch): {step for step, _ in branch.compensations} for branch in saga.branches
    }
    everywhere = dict.fromkeys(step for branch in saga.branches for step, _ in branch.compensations)
    for step in everywhere:
        if step.compensation is not None or step.stays:
            continue
        without = [b for b in saga.branches if step not in declared[id(b)]]
        if without:
            names = ", ".join(branch.error.__name__ for branch in without)
            said = f"an error branch undoes {step.name!r}, and that for {names} doesn't"
            yield rules.LEAVES_UNDO_OUT.at(saga.name, said, source=source_of(step.function))


def _undo_of_undo(layout: Layout) -> Iterator[Finding]:
    saga = layout.saga
    for step in saga.steps:
        undo = saga.undo_of(step, None)
        if undo is not None and undo.compensation is not None:
            said = f"its compensation {undo.name!r} has one of its own, {undo.compensation.name!r}"
            yield rules.UNDO_OF_UNDO.at(
                f"{saga.name}/{step.name}", said, source=source_of(undo.function)
            )


# -- effects -------------------------------------------------------------------------------


def _effects(layout: Layout, *, child: bool) -> Iterator[Finding]:
    saga = layout.saga
    has_pivot = any(node.pivot for _, node in layout.steps)
    for place, node in layout.steps:
        step = node.step
        safe = place.past_pivot or node.pivot or (place.last and not child)
        if safe or step.stays or not step.effects or saga.undo_of(step, None) is not None:
            continue
        names = ", ".join(effect.name for effect in step.effects)
        yield rules.NOT_UNDOABLE.at(
            place.name,
            f"nothing undoes {names} if {'something' if place.last else 'a later step'} fails",
            severity=Severity.ERROR if has_pivot else None,
            source=source_of(step.function),
        )


# -- the pivot -----------------------------------------------------------------------------


def has_pivot(saga: Saga[Any, Any]) -> bool:
    """Whether it, or a child saga, may come to a point without a way back."""
    return any(
        (isinstance(node, StepNode) and node.pivot)
        or (isinstance(node, MapNode) and has_pivot(node.child))
        for node in saga.all_nodes()
    )


def _pivots(layout: Layout) -> Iterator[Finding]:
    pivots = [(place, node) for place, node in layout.steps if node.pivot]
    for place, _ in pivots:
        if place.inside:
            yield rules.NESTED_PIVOT.at(place.name, f"it is inside of {place.inside[-1].name!r}")
    on_line = [place for place, _ in pivots if not place.inside]
    for place in on_line[1:]:
        yield rules.SEVERAL_PIVOTS.at(place.name, f"{on_line[0].name} is a pivot already")


def _pivot_in_child(place: Place, node: MapNode) -> Iterator[Finding]:
    alone = node.single or isinstance(node.join, Collect)
    if not has_pivot(node.child) or place.past_pivot or (place.last and alone):
        return
    who = "it" if place.last else "its parent"
    said = f"child saga {node.child.name!r} has a pivot, and {who} can fail afterwards"
    yield rules.PIVOT_IN_CHILD.at(place.name, said)


def _past_pivot(saga: Saga[Any, Any], place: Place) -> Iterator[Finding]:
    node = place.node
    undo = saga.undo_of(node.step, None) if isinstance(node, StepNode) else None
    if isinstance(node, StepNode) and undo is not None:
        yield rules.UNDO_AFTER_PIVOT.at(
            place.name,
            f"its compensation {undo.name!r} never runs",
            source=source_of(node.step.function),
        )
    said = _how_it_fails(node)
    if said is not None:
        yield rules.FAILS_AFTER_PIVOT.at(place.name, f"{said}, after the pivot")
    said = _how_it_may_fail(node)
    if said is not None:
        yield rules.FAILS_AFTER_PIVOT.at(
            place.name,
            f"{said}, after the pivot",
            fix="let it give a result that the next step handles",
            severity=Severity.WARNING,
        )


def _how_it_fails(node: Node) -> str | None:
    match node:
        case MapNode(single=True):
            return f"its child {node.child.name!r} may fail"
        case MapNode() if not isinstance(node.join, Collect):
            return "its children may fail"
        case WaitNode(kind=WaitKind.APPROVAL):
            return "the answer may be no"
        case WaitNode(timeout=timeout) if timeout is not None:
            return f"its time-out of {timeout} may pass"
        case _:
            return None


def _how_it_may_fail(node: Node) -> str | None:
    match node:
        case StepNode() if node.step.deadline is not None:
            return f"its deadline of {node.step.deadline} may pass"
        case LoopNode():
            return f"it fails after {node.max_visits} passes"
        case _:
            return None
