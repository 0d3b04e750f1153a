"""A saga's version: a hash of everything that a recorded prefix depends on."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, assert_never

from fencepost import serde
from fencepost.saga.nodes import BranchNode, LoopNode, MapNode, Node, StepNode, WaitNode

if TYPE_CHECKING:
    from fencepost.saga.definition import Saga

VERSION_LENGTH = 12
"""Hexadecimal digits that are kept of the hash."""


def structural_hash(saga: Saga[Any, Any]) -> str:
    """Hash names, order, kinds, JSON schemas, compensations and branches.

    Caps, retries, queues, joins and times are left out: changing them strands nobody.
    """
    shape = {
        "name": saga.name,
        "input": schema_of(saga.input_type),
        "nodes": _nodes(saga),
        "branches": [
            {
                "error": branch.name,
                "nodes": [_node(node) for node in branch.nodes],
                "compensations": sorted([s.name, u.name] for s, u in branch.compensations),
            }
            for branch in saga.branches
        ],
    }
    canonical = json.dumps(shape, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:VERSION_LENGTH]


def _nodes(saga: Saga[Any, Any]) -> list[dict[str, Any]]:
    return [_node(node) for node in saga.nodes]


def _node(node: Node) -> dict[str, Any]:
    match node:
        case StepNode():
            return _step(node)
        case MapNode():
            return {
                "map": node.name,
                "child": node.child.name,
                "version": node.child.version,
                "single": node.single,
                "output": schema_of(node.output_type),
            }
        case BranchNode():
            paths = {label: _nodes(path) for label, path in node.cases.items()}
            default = None if node.default is None else _nodes(node.default)
            return {"branch": node.name, "cases": paths, "default": default}
        case LoopNode():
            return {"loop": node.name, "body": _nodes(node.body)}
        case WaitNode():
            signal = node.signal
            return {
                "wait": node.name,
                "kind": node.kind,
                "signal": None if signal is None else [signal.name, schema_of(signal.payload)],
            }
        case _:
            assert_never(node)


def _step(node: StepNode) -> dict[str, Any]:
    undo = node.step.compensation
    return {
        "step": node.name,
        "input": schema_of(node.step.input_type),
        "output": schema_of(node.step.output_type),
        "transactional": node.step.transactional,
        "compensation": undo.name if undo else None,
        "terminal": node.terminal,
        "pivot": node.pivot,
    }


def schema_of(declared: Any) -> Any:
    """The JSON schema of a declared type, without titles and descriptions."""
    return _without_prose(serde.adapter(declared).json_schema())


def _without_prose(schema: Any) -> Any:
    # A changed docstring must not strand executions.
    if isinstance(schema, dict):
        return {
            key: _without_prose(value)
            for key, value in schema.items()
            if not (key in ("title", "description") and isinstance(value, str))
        }
    return [_without_prose(item) for item in schema] if isinstance(schema, list) else schema
