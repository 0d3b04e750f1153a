"""Children: their making, their publishing, and what came of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fencepost import faults, identity, serde
from fencepost.errors import ChildrenFailedError, FencepostError, SagaDefinitionError
from fencepost.records import Execution, NewExecution, Phase, Status
from fencepost.saga import MapNode

if TYPE_CHECKING:
    from fencepost.engine.core import Engine

logger = logging.getLogger(__name__)

FAILURES_REPORTED = 20
"""Failed children whose errors are copied into the parent's; the rest is counted."""


def children_of(parent: Execution, node: MapNode, visit: int, stored: Any) -> list[NewExecution]:
    """The children of a fan-out; the same on every worker.

    Raises:
        SagaDefinitionError: More items than `max_items`.
        PayloadError: An item isn't of the child saga's input type.
    """
    value = serde.load(stored, node.input_type, what=f"input of {node.name!r}")
    items = list(node.over(value))
    if len(items) > node.max_items:
        raise SagaDefinitionError(
            f"{node.name!r} has {len(items)} items, and max_items is {node.max_items}",
            step=node.name,
            items=len(items),
            max_items=node.max_items,
        )
    return [_child(parent, node, visit, index, item) for index, item in enumerate(items)]


def _child(parent: Execution, node: MapNode, visit: int, index: int, item: Any) -> NewExecution:
    data = serde.dump(item, node.child.input_type, what=f"item {index} of {node.name!r}")
    child_id = identity.child_id(parent.execution_id, node.name, visit, index)
    return NewExecution(
        execution_id=child_id,
        saga=node.child.name,
        version=node.child.version,
        input=data,
        input_digest=serde.digest(data),
        lineage_id=child_id,
        root_id=parent.root_id,
        parent_id=parent.execution_id,
        parent_step=node.name,
        parent_visit=visit,
        child_index=index,
        status=Status.ACTIVE if index < node.max_concurrency else Status.QUEUED,
    )


def publish(engine: Engine, parent: Execution, node: MapNode, visit: int) -> None:
    """Publish a fan-out's chord. A failure is only logged: the rows are the outbox."""
    faults.reach("fan-out.before-publish", step=node.name)
    children = engine.executions.children(parent.execution_id, node.name, visit)
    try:
        engine.transport.fan_out(children)
    except FencepostError as problem:
        logger.warning("the fan-out of %s could not be published: %s", node.name, problem)
    faults.reach("fan-out.after-publish", step=node.name)


def publish_undo(engine: Engine, parent: Execution, node: MapNode, visit: int) -> None:
    """Ask for workers for the children that undo their work."""
    for child in engine.executions.children(parent.execution_id, node.name, visit):
        if child.status is Status.ACTIVE and child.phase is Phase.COMPENSATING:
            engine.dispatch(child)


def failure_of(node: MapNode, children: Sequence[Execution]) -> ChildrenFailedError | None:
    """The error of a fan-out of which a child did not succeed."""
    failed = [child for child in children if child.status is not Status.SUCCEEDED]
    if not failed:
        return None
    first = (failed[0].error or {}).get("message", failed[0].status)
    return ChildrenFailedError(
        f"{len(failed)} of {len(children)} children of {node.name!r} failed; the first: {first}",
        step=node.name,
        failed=[
            {
                "index": child.child_index,
                "execution_id": str(child.execution_id),
                "status": str(child.status),
                "error": child.error,
            }
            for child in failed[:FAILURES_REPORTED]
        ],
        count=len(failed),
    )
