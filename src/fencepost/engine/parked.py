"""What a person can decide about the step at which an execution is parked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fencepost import serde
from fencepost.commands import (
    Command,
    Definition,
    JoinChildren,
    RunStep,
    RunUndo,
    Wait,
    Wake,
)
from fencepost.decide import RETURN_STEP, decide, interrupted
from fencepost.durable import DurableTask
from fencepost.effects.model import UNKNOWN_OUTCOME
from fencepost.engine.refusals import wrong_state
from fencepost.errors import CheckpointForkError
from fencepost.failure import ErrorInfo
from fencepost.identity import step_key
from fencepost.ports import EffectStore, ExecutionStore
from fencepost.progress import Progress
from fencepost.records import Checkpoint, CheckpointKind, EventName, Execution, Phase, Status
from fencepost.saga import BranchNode, LoopNode, Saga

SKIPPED = "step.skipped"
"""The code of a step's failure that a person skipped, and that had recorded no error."""


class Hand(StrEnum):
    """What is in hand."""

    STEP = "step"
    UNDO = "compensation"
    JOIN = "join"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class InHand:
    """What an execution is parked at."""

    kind: Hand
    step: str
    visit: int


_OPEN = {
    CheckpointKind.FAN_OUT: Hand.JOIN,
    CheckpointKind.STOP: Hand.JOIN,
    CheckpointKind.WAIT: Hand.WAIT,
}


def step_in_hand(
    executions: ExecutionStore, execution: Execution, definition: Definition | None
) -> InHand:
    """What an execution is parked at.

    Raises:
        ExecutionStateError: It isn't parked; or nobody can decide about what it is parked at, or
            not without its definition.
    """
    if execution.status is not Status.PARKED:
        raise wrong_state(execution, "only about the step of a parked one can be decided")
    chain = executions.chain(execution.execution_id)
    if isinstance(definition, Saga):
        return _by_definition(execution, chain, definition)
    step, visit = _parked_at(executions, execution)
    head = chain[-1]
    at_head = (step, visit) == _at(head)
    if step == RETURN_STEP or (isinstance(definition, DurableTask) and at_head):
        raise wrong_state(
            execution,
            "it is parked at its task's body and not at a step: mend the code or the cause, then"
            " retry",
            following=_retry(execution),
        )
    if not at_head:
        return InHand(_kind(execution, chain, step, visit), step, visit)
    kind = _OPEN.get(head.kind)
    if kind is None:
        # Parked over its takeovers, say: under the last step that was completed.
        raise wrong_state(
            execution,
            "what it is parked at can only be told by its saga's definition: name your app",
            following=f"fencepost skip {execution.execution_id} --app APP --why '...'",
        )
    return InHand(kind, step, visit)


def _at(entry: Checkpoint) -> tuple[str, int]:
    return entry.step, entry.visit


def _retry(execution: Execution) -> str:
    return f"fencepost retry {execution.execution_id} --why '...'"


def _parked_at(executions: ExecutionStore, execution: Execution) -> tuple[str, int]:
    events = executions.events([execution.execution_id])
    parked = [event for event in events if event.name == EventName.PARKED and event.step_key]
    if not parked:
        raise wrong_state(execution, "no step is on record at which it was parked")
    _, step, visit = str(parked[-1].step_key).rsplit(":", 2)
    return step, int(visit)


def _kind(execution: Execution, chain: Sequence[Checkpoint], step: str, visit: int) -> Hand:
    if execution.phase is Phase.COMPENSATING:
        done = Progress(chain).find(CheckpointKind.STEP, step, visit)
        return Hand.STEP if done is None else Hand.UNDO
    return Hand.STEP


def _by_definition(
    execution: Execution, chain: Sequence[Checkpoint], saga: Saga[Any, Any]
) -> InHand:
    try:
        command: Command | None = (
            decide(saga, execution.phase, chain)
            if execution.turned_back is None
            else interrupted(saga, chain)
        )
    except CheckpointForkError as problem:
        raise wrong_state(execution, problem.message) from None
    match command:
        case RunStep():
            return InHand(Hand.STEP, command.step.name, command.visit)
        case RunUndo():
            return InHand(Hand.UNDO, command.step.name, command.visit)
        case JoinChildren():
            return InHand(Hand.JOIN, command.node.name, command.visit)
        case Wait() | Wake():
            return InHand(Hand.WAIT, command.node.name, command.visit)
        case _:
            raise wrong_state(
                execution,
                "it is not parked at a step: mend the code or the cause, then retry",
                following=_retry(execution),
            )


def refuse_in_doubt(effects: EffectStore, execution: Execution, hand: InHand) -> None:
    """Refuse to decide about a step while the outcome of one of its effects is not known.

    Raises:
        ExecutionStateError: It is not.
    """
    key = step_key(execution.execution_id, hand.step, hand.visit)
    for effect in effects.of_execution(execution.execution_id):
        if effect.step_key == key and effect.status in UNKNOWN_OUTCOME:
            raise wrong_state(
                execution,
                f"the outcome of {effect.effect!r} ({effect.key} at {effect.sink}) is not known:"
                f" decide about that first, with `fencepost resolve {effect.sink} {effect.key}`",
                following=f"fencepost effects {execution.execution_id} --in-doubt",
            )


def skipping(
    _executions: ExecutionStore,
    execution: Execution,
    _definition: Definition | None,
    hand: InHand,
) -> dict[str, Any]:
    """The directive that leaves the step in hand as it is.

    Raises:
        ExecutionStateError: It can't be skipped.
    """
    mine = execution.execution_id
    if execution.phase is Phase.PAST_PIVOT:
        raise wrong_state(
            execution,
            f"{hand.step!r} comes after the pivot, where nothing is undone and nothing can be"
            " left out: give its result",
            following=f"fencepost resolve {mine} --result '...' --why '...'",
        )
    if hand.kind in (Hand.JOIN, Hand.WAIT):
        raise wrong_state(
            execution,
            f"{hand.step!r} is a {hand.kind}, and no step: retry, or cancel",
            following=f"fencepost cancel {mine} --why '...'",
        )
    error = execution.error if isinstance(execution.error, dict) else _skipped(execution, hand)
    return {"do": "skip", "step": hand.step, "visit": hand.visit, "error": error}


def _skipped(execution: Execution, hand: InHand) -> Any:
    message = f"step {hand.step!r} was skipped: {execution.parked_reason}"
    return ErrorInfo(error_type="", code=SKIPPED, message=message).model_dump(mode="json")


def resolving(
    executions: ExecutionStore,
    execution: Execution,
    definition: Definition | None,
    hand: InHand,
    *,
    result: Any,
) -> dict[str, Any]:
    """The directive that gives the result of the step in hand.

    Raises:
        ExecutionStateError: It has none, or has children that are still under way.
        PayloadError: The result isn't of its type.
    """
    if hand.kind is Hand.WAIT:
        raise wrong_state(
            execution,
            f"{hand.step!r} is a wait: send what it waits for, then retry",
            following=f"fencepost signal {execution.execution_id} NAME --payload '...'",
        )
    if hand.kind is Hand.JOIN:
        children = executions.children(execution.execution_id, hand.step, hand.visit)
        live = sum(not child.status.ended for child in children)
        if live:
            raise wrong_state(
                execution, f"{live} children of {hand.step!r} have not ended: it has no result yet"
            )
    if hand.kind is not Hand.UNDO and isinstance(definition, Saga):
        result = _of_its_type(definition, hand, result)
    return {"do": "resolve", "step": hand.step, "visit": hand.visit, "result": result}


def _of_its_type(saga: Saga[Any, Any], hand: InHand, result: Any) -> Any:
    what = f"result of step {hand.step!r}"
    for node in saga.all_nodes():
        if node.name == hand.step and not isinstance(node, BranchNode | LoopNode):
            value = serde.load(result, node.output_type, what=what)
            return serde.dump(value, node.output_type, what=what)
    return result
