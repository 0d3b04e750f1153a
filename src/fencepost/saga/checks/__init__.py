"""What can be known of a saga before it runs: all findings at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fencepost.durable import DurableTask
from fencepost.findings import Finding
from fencepost.saga.checks import bodies, bounds, structure, types, undoing
from fencepost.saga.checks.rules import RULES
from fencepost.saga.checks.walk import Layout
from fencepost.saga.definition import Saga
from fencepost.saga.nodes import MapNode
from fencepost.saga.steps import Step


def check(definition: Saga[Any, Any] | DurableTask[Any, Any]) -> list[Finding]:
    """All findings about a saga or a durable task."""
    if isinstance(definition, DurableTask):
        return check_task(definition)
    return check_saga(definition)


def check_saga(saga: Saga[Any, Any]) -> list[Finding]:
    """All findings about a saga and, each once, its child sagas.

    One without errors can be registered. Nothing is run, and nothing outside is asked.
    """
    sagas = list(saga.descendants())
    children = {id(node.child) for one in sagas for node in _fan_outs(one)}
    found: list[Finding] = []
    for one in sagas:
        found.extend(_one(one, child=id(one) in children))
    found.extend(bounds.names(sagas))
    return list(dict.fromkeys(found))


def check_task(task: DurableTask[Any, Any]) -> list[Finding]:
    """All findings about a durable task, and the steps that its code names."""
    found = list(types.stored(task.input_type, task.name, "its input", given=True))
    found.extend(types.stored(task.output_type, task.name, "its result", given=True))
    found.extend(bodies.undeclared(task.function, task.effects, task.name))
    named = [*bodies.named_in(task.function)]
    for helper in bodies.helpers_of(task.function):
        named.extend(bodies.named_in(helper))
    for step in dict.fromkeys(value for value in named if isinstance(value, Step)):
        found.extend(_step(step, f"{task.name}/{step.name}"))
    return list(dict.fromkeys(found))


def _one(saga: Saga[Any, Any], *, child: bool) -> Iterator[Finding]:
    layout = Layout(saga)
    yield from structure.check(layout)
    yield from types.check(layout)
    for step in saga.steps:
        yield from bodies.check_step(step, f"{saga.name}/{step.name}")
    yield from undoing.check(layout, child=child)
    yield from bounds.check(layout)


def _step(step: Step[Any, Any], place: str) -> Iterator[Finding]:
    yield from types.stored_by_step(step, place)
    yield from bodies.check_step(step, place)


def _fan_outs(saga: Saga[Any, Any]) -> Iterator[MapNode]:
    return (node for node in saga.all_nodes() if isinstance(node, MapNode))


__all__ = ["RULES", "check", "check_saga", "check_task"]
