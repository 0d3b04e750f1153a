"""A saga's version: a hash of everything that a recorded prefix depends on."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from fencepost import serde

if TYPE_CHECKING:
    from fencepost.saga.definition import Node, Saga, StepNode

VERSION_LENGTH = 12
"""Hexadecimal digits that are kept of the hash."""


def structural_hash(saga: Saga[Any, Any]) -> str:
    """Hash names, order, kinds, JSON schemas, compensations and branches.

    Caps, retries and time-outs are left out: changing them strands nobody.
    """
    shape = {
        "name": saga.name,
        "input": schema_of(saga.input_type),
        "nodes": [_node(node) for node in saga.nodes],
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


def _node(node: Node) -> dict[str, Any]:
    from fencepost.saga.definition import MapNode

    if isinstance(node, MapNode):
        return {"map": node.name, "child": node.child.name, "version": node.child.version}
    return _step(node)


def _step(node: StepNode) -> dict[str, Any]:
    undo = node.step.compensation
    return {
        "step": node.name,
        "input": schema_of(node.step.input_type),
        "output": schema_of(node.step.output_type),
        "transactional": node.step.transactional,
        "compensation": undo.name if undo else None,
        "terminal": node.terminal,
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
