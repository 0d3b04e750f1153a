"""Which way a branch or a loop goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost import serde
from fencepost.commands import Choose
from fencepost.errors import LoopBoundError, SagaDefinitionError
from fencepost.records import CheckpointKind
from fencepost.saga import BranchNode, LoopNode
from fencepost.saga.nodes import case_label

if TYPE_CHECKING:
    from fencepost.engine.saga_run import SagaRun


def choose(run: SagaRun, command: Choose) -> None:
    """Ask the saga's function, and put its answer on record."""
    node, visit = command.node, command.visit
    try:
        answer = _answer(node, command)
    except Exception as error:  # noqa: BLE001 - the function is the user's code
        run.failed(node.name, visit, error)
        return
    run.own.commit(CheckpointKind.DECISION, node.name, visit, answer)


def _answer(node: BranchNode | LoopNode, command: Choose) -> Any:
    if isinstance(node, BranchNode):
        value = serde.load(command.value, node.input_type, what=f"input of {node.name!r}")
        label = case_label(node.choose(value))
        if label not in node.cases and node.default is None:
            raise SagaDefinitionError(f"{node.name!r} has no path for {label!r}", step=node.name)
        return {"case": label}
    value = serde.load(command.value, node.again_type, what=f"result of {node.name!r}")
    again = bool(node.again(value))
    if again and command.passes >= node.max_visits:
        raise LoopBoundError(
            f"{node.name!r} wanted another pass after {command.passes}",
            step=node.name,
            max_visits=node.max_visits,
        )
    return {"again": again}
