"""Children: their making, their publishing, their stopping, and what came of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never

from fencepost import faults, identity, serde
from fencepost.commands import FanOut, JoinChildren, UndoFanOut, UndoJoin, first_queue
from fencepost.decide import STOPPED, told
from fencepost.errors import (
    ChildrenFailedError,
    FencepostError,
    PayloadError,
    SagaDefinitionError,
    Suspended,
)
from fencepost.records import CheckpointKind, Execution, NewExecution, Phase, Status
from fencepost.saga import Collect, FirstFailure, MapNode, Quorum

if TYPE_CHECKING:
    from fencepost.engine.core import Engine
    from fencepost.engine.saga_run import SagaRun

logger = logging.getLogger(__name__)

FAILURES_REPORTED = 20
"""Failed children whose errors are copied into the parent's; the rest is counted."""


def go_on(run: SagaRun, command: FanOut | JoinChildren | UndoFanOut | UndoJoin) -> None:
    """Do what a command about children says."""
    match command:
        case FanOut():
            _begin(run, command)
        case JoinChildren():
            _join(run, command)
        case UndoFanOut():
            _begin_undo(run, command)
        case UndoJoin():
            _join_undo(run, command)
        case _:
            assert_never(command)


def _begin(run: SagaRun, command: FanOut) -> None:
    """Insert the children with the fan-out's checkpoint, then publish them."""
    node, visit = command.node, command.visit
    try:
        children = children_of(run.own.execution, node, visit, command.value)
    except Exception as error:  # noqa: BLE001 - `over` is the user's code
        run.failed(node.name, visit, error)
        return
    failures, successes = _wakes_at(node, len(children))
    run.own.commit(
        CheckpointKind.FAN_OUT,
        node.name,
        visit,
        {"children": len(children)},
        children=tuple(children),
        max_concurrency=node.max_concurrency,
        wakes_at_failures=failures,
        wakes_at_successes=successes,
        waits=bool(children),
    )
    if children:
        run.let_go()
        publish(run.engine, run.own.execution, node, visit)
        raise Suspended(f"{len(children)} children of {node.name!r} were started")


def _wakes_at(node: MapNode, children: int) -> tuple[int | None, int | None]:
    """How many failures, or successes, decide the join before all children have ended."""
    match node.join:
        case FirstFailure():
            return 1, None
        case Quorum(successes):
            return children - successes + 1, successes
        case _:
            return None, None


def _join(run: SagaRun, command: JoinChildren) -> None:
    """Commit what came of the children, once it is decided; tell to stop who isn't needed."""
    node, visit = command.node, command.visit
    decision = run.own.directed(node.name, visit)
    if decision is not None:
        _join_as_decided(run, command, decision)
        return
    children = run.store.children(run.own.execution.execution_id, node.name, visit)
    live = [child for child in children if not child.status.ended]
    error = failure_of(node, children)
    if error is not None and (not live or _hopeless(node, children)):
        run.failed(node.name, visit, error)
    elif not live:
        run.own.commit(CheckpointKind.JOIN, node.name, visit, result_of(node, children))
    elif not command.stopped and _decided(node, children):
        _stop(run, command, len(live))
    else:
        run.wait_on(f"children of {node.name!r} are still live")


def _join_as_decided(run: SagaRun, command: JoinChildren, decision: Any) -> None:
    node, visit = command.node, command.visit
    what = f"result that {decision['by']} has given for {node.name!r}"
    if decision["do"] == "skip":
        reason = f"{node.name!r} can't be skipped after the pivot: give its result"
        run.park(node.name, visit, reason, None)
    try:
        result = serde.load(decision["result"], node.output_type, what=what)
        data = serde.dump(result, node.output_type, what=what)
    except PayloadError as problem:
        run.park(node.name, visit, problem.message, problem)
    run.own.commit(CheckpointKind.JOIN, node.name, visit, data)


def _stop(run: SagaRun, command: JoinChildren, live: int) -> None:
    node, visit = command.node, command.visit
    run.own.commit(
        CheckpointKind.STOP,
        node.name,
        visit,
        {"live": live},
        stop_children_of=(node.name, visit),
        tells=told(STOPPED, "enough of its siblings have succeeded"),
        max_concurrency=node.max_concurrency,
        waits=True,
    )
    run.let_go()
    publish_undo(run.engine, run.own.execution, node, visit)
    raise Suspended(f"{live} children of {node.name!r} are told to stop")


def _begin_undo(run: SagaRun, command: UndoFanOut) -> None:
    """Have the children undo their work, within the same cap."""
    node, visit = command.node, command.visit
    run.own.commit(
        CheckpointKind.UNDO_FAN_OUT,
        node.name,
        visit,
        None,
        times=command.times,
        undo_children_of=(node.name, visit),
        max_concurrency=node.max_concurrency,
        waits=True,
    )
    run.let_go()
    publish_undo(run.engine, run.own.execution, node, visit)
    raise Suspended(f"children of {node.name!r} undo their work")


def _join_undo(run: SagaRun, command: UndoJoin) -> None:
    """Record that all children have undone their work."""
    node, visit = command.node, command.visit
    children = run.store.children(run.own.execution.execution_id, node.name, visit)
    if not all(child.status.ended for child in children):
        run.wait_on(f"children of {node.name!r} still undo their work")
    run.own.commit(CheckpointKind.UNDO, node.name, visit, None)


def children_of(parent: Execution, node: MapNode, visit: int, stored: Any) -> list[NewExecution]:
    """The children of a fan-out; the same on every worker.

    Raises:
        SagaDefinitionError: More items than `max_items`.
        PayloadError: An item isn't of the child saga's input type.
    """
    value = serde.load(stored, node.input_type, what=f"input of {node.name!r}")
    items = list(node.over(value))
    if node.max_items is not None and len(items) > node.max_items:
        raise SagaDefinitionError(
            f"{node.name!r} has {len(items)} items, and max_items is {node.max_items}",
            step=node.name,
            items=len(items),
            max_items=node.max_items,
        )
    if isinstance(node.join, Quorum) and len(items) < node.join.successes:
        raise SagaDefinitionError(
            f"{node.name!r} has {len(items)} items, and needs {node.join.successes} to succeed",
            step=node.name,
            items=len(items),
            successes=node.join.successes,
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
        queue=first_queue(node.child),
        priority=parent.priority,
        deadline_in=node.child.deadline,
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


def _failed(children: Sequence[Execution]) -> list[Execution]:
    return [c for c in children if c.status.ended and c.status is not Status.SUCCEEDED]


def _succeeded(children: Sequence[Execution]) -> list[Execution]:
    return [child for child in children if child.status is Status.SUCCEEDED]


def _hopeless(node: MapNode, children: Sequence[Execution]) -> bool:
    """Whether the join has failed, however the live children end."""
    match node.join:
        case FirstFailure():
            return bool(_failed(children))
        case Quorum(successes):
            return len(children) - len(_failed(children)) < successes
        case _:
            return False


def _decided(node: MapNode, children: Sequence[Execution]) -> bool:
    """Whether the join has succeeded, however the live children end."""
    return isinstance(node.join, Quorum) and len(_succeeded(children)) >= node.join.successes


def result_of(node: MapNode, children: Sequence[Execution]) -> Any:
    """What the next node is given; for children that have all ended, and well enough."""
    if node.single:
        return children[0].result
    match node.join:
        case Collect():
            return [
                {
                    "succeeded": child.status is Status.SUCCEEDED,
                    "value": child.result if child.status is Status.SUCCEEDED else None,
                    "error": _error_of(child),
                }
                for child in children
            ]
        case _:
            return [child.result for child in _succeeded(children)]


def _error_of(child: Execution) -> Any:
    if child.status is Status.SUCCEEDED:
        return None
    known = child.error or {}
    return {
        "error_type": known.get("error_type", ""),
        "code": known.get("code", f"execution.{child.status}"),
        "message": known.get("message", str(child.status)),
        "details": known.get("details", {}),
    }


def failure_of(node: MapNode, children: Sequence[Execution]) -> ChildrenFailedError | None:
    """The error of a fan-out of which too many children did not succeed."""
    failed = _failed(children)
    match node.join:
        case Collect():
            return None
        case Quorum(successes) if len(children) - len(failed) >= successes:
            return None
        case _ if not failed:
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
