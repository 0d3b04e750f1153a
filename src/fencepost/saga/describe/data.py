"""A saga or durable task as JSON-compatible data; the other forms are made from it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, assert_never

from fencepost import serde
from fencepost.commands import Definition
from fencepost.durable import DurableTask
from fencepost.effects import Effect
from fencepost.limits import Limit
from fencepost.retry import RetryPolicy
from fencepost.saga.checks.walk import OTHERWISE
from fencepost.saga.definition import Saga
from fencepost.saga.joins import AllSucceed, Collect, FirstFailure, Join, Quorum
from fencepost.saga.nodes import (
    BranchNode,
    LoopNode,
    MapNode,
    Node,
    StepNode,
    WaitNode,
    flattened,
)
from fencepost.saga.steps import Step

Data = dict[str, Any]


def describe(definition: Definition) -> Data:
    """A saga with its child sagas, or a durable task. Times are in seconds, types as written."""
    if isinstance(definition, DurableTask):
        return {
            "kind": "task",
            "name": definition.name,
            "version": _version(definition),
            "input": _type(definition.input_type),
            "output": _type(definition.output_type),
            "effects": _effects(definition.effects),
            "retry": _retry(definition.retry),
        }
    children = [saga for saga in definition.descendants() if saga is not definition]
    return _saga(definition) | {"children": [_saga(child) for child in children]}


def _saga(saga: Saga[Any, Any]) -> Data:
    return {
        "kind": "saga",
        "name": saga.name,
        "version": _version(saga),
        "input": _type(saga.input_type),
        "output": _type(saga.output_type),
        "deadline": _seconds(saga.deadline),
        "queue": saga.queue,
        "nodes": _nodes(saga.nodes, saga),
        "branches": [
            {
                "error": branch.error.__name__,
                "compensations": [
                    {"step": step.name, "undo": undo.name} for step, undo in branch.compensations
                ],
                "nodes": _nodes(branch.nodes, saga),
            }
            for branch in saga.branches
        ],
    }


def _version(definition: Definition) -> str | None:
    try:
        return definition.version
    except Exception:  # noqa: BLE001 - a type without a schema; `check` says which
        return None


def _type(declared: Any) -> str:
    return "None" if declared in (None, type(None)) else serde.describe(declared)


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _nodes(nodes: Iterable[Node], saga: Saga[Any, Any]) -> list[Data]:
    return [_node(node, saga) for node in nodes]


def _node(node: Node, saga: Saga[Any, Any]) -> Data:
    common = {
        "name": node.name,
        "input": _type(node.input_type),
        "output": _type(node.output_type),
    }
    match node:
        case StepNode():
            return {"kind": "step"} | common | _step(node, saga)
        case MapNode():
            return {"kind": "child" if node.single else "map"} | common | _map(node)
        case BranchNode():
            cases: Data = {label: _nodes(path.nodes, saga) for label, path in node.cases.items()}
            if node.default is not None:
                cases[OTHERWISE] = _nodes(node.default.nodes, saga)
            return {"kind": "branch"} | common | {"cases": cases}
        case LoopNode():
            body = _nodes(node.body.nodes, saga)
            return {"kind": "loop"} | common | {"max_visits": node.max_visits, "body": body}
        case WaitNode():
            return {"kind": str(node.kind)} | common | _wait(node)
        case _:
            assert_never(node)


def _step(node: StepNode, saga: Saga[Any, Any]) -> Data:
    step: Step[Any, Any] = node.step
    undo = saga.undo_of(step, None)
    return {
        "pivot": node.pivot,
        "terminal": None if node.terminal is None else str(node.terminal),
        "compensation": None if undo is None else undo.name,
        "stays": step.stays,
        "transactional": step.transactional,
        "effects": _effects(step.effects),
        "undo_effects": [] if undo is None else _effects(undo.effects),
        "retry": _retry(step.pivot_retry if _past_pivot(node, saga) else step.retry),
        "timeout": _seconds(step.timeout),
        "deadline": _seconds(step.deadline),
        "queue": step.queue,
        "limit": _limit(step.limit),
    }


def _past_pivot(node: StepNode, saga: Saga[Any, Any]) -> bool:
    names = [one.name for one in flattened(saga.nodes)]
    pivots = [one.name for one in saga.nodes if isinstance(one, StepNode) and one.pivot]
    if not pivots or node.name not in names:
        return False
    return names.index(node.name) > names.index(pivots[0])


def _effects(effects: Iterable[Effect[Any, Any]]) -> list[Data]:
    return [
        {"name": effect.name, "kind": str(effect.kind), "sink": effect.sink} for effect in effects
    ]


def _retry(policy: RetryPolicy) -> Data:
    return {
        "attempts": policy.attempts,
        "first_delay": policy.first_delay.total_seconds(),
        "max_delay": policy.max_delay.total_seconds(),
        "retry_on": [error.__name__ for error in policy.retry_on],
        "give_up_on": [error.__name__ for error in policy.give_up_on],
    }


def _limit(limit: Limit | None) -> Data | None:
    if limit is None:
        return None
    return {
        "name": limit.name,
        "concurrency": limit.concurrency,
        "rate": limit.rate,
        "per": limit.per.total_seconds(),
        "by_key": limit.key is not None,
    }


def _map(node: MapNode) -> Data:
    return {
        "child": node.child.name,
        "child_version": _version(node.child),
        "join": _join(node.join),
        "max_concurrency": node.max_concurrency,
        "max_items": node.max_items,
    }


def _join(join: Join) -> str:
    match join:
        case AllSucceed():
            return "all succeed"
        case FirstFailure():
            return "all succeed, the first failure stops the others"
        case Quorum(successes):
            return f"{successes} succeed, the others are stopped"
        case Collect():
            return "collect"
        case _:
            assert_never(join)


def _wait(node: WaitNode) -> Data:
    fixed = node.duration if isinstance(node.duration, timedelta) else None
    return {
        "signal": None if node.signal is None else node.signal.name,
        "duration": _seconds(fixed),
        "timeout": _seconds(node.timeout),
    }
