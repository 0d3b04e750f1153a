"""What an execution can be told to do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fencepost.durable import DurableTask
from fencepost.records import Checkpoint, Status
from fencepost.saga import (
    BranchNode,
    LoopNode,
    MapNode,
    Saga,
    Step,
    StepNode,
    TerminalKind,
    WaitNode,
)

Definition = Saga[Any, Any] | DurableTask[Any, Any]


@dataclass(frozen=True, slots=True)
class RunStep:
    """Run a step's body and commit its result.

    Attributes:
        pivot: Once it is completed, the saga only goes forward.
        in_branch: It is a step of an error branch.
    """

    step: Step[Any, Any]
    visit: int
    value: Any
    terminal: TerminalKind | None = None
    pivot: bool = False
    in_branch: bool = False


@dataclass(frozen=True, slots=True)
class RunBody:
    """Run a durable task's body, which replays and then extends the chain itself."""

    task: DurableTask[Any, Any]
    value: Any


@dataclass(frozen=True, slots=True)
class RunUndo:
    """Run the compensation of a completed step."""

    step: Step[Any, Any]
    undo: Step[Any, Any]
    visit: int
    value: Any


@dataclass(frozen=True, slots=True)
class Choose:
    """Ask which way a branch goes, or whether a loop goes on, and commit the answer.

    Attributes:
        passes: Of a loop: how many it has made since the execution came to it.
    """

    node: BranchNode | LoopNode
    visit: int
    value: Any
    passes: int = 0


@dataclass(frozen=True, slots=True)
class FanOut:
    """Insert the children of a map node, and wait for them."""

    node: MapNode
    visit: int
    value: Any


@dataclass(frozen=True, slots=True)
class JoinChildren:
    """See how the children of a map node have ended, and commit what came of them.

    Attributes:
        stopped: Those that were left have been told to stop.
    """

    node: MapNode
    visit: int
    stopped: bool


@dataclass(frozen=True, slots=True)
class UndoFanOut:
    """Let the children of a map node undo their work, and wait for them.

    Attributes:
        times: Which time: again where the execution has turned back anew since the last one,
            which has stopped its children.
    """

    node: MapNode
    visit: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class UndoJoin:
    """All children have undone their work: record that it is done."""

    node: MapNode
    visit: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Begin to wait for a time or a signal."""

    node: WaitNode
    visit: int
    value: Any


@dataclass(frozen=True, slots=True)
class Wake:
    """See whether the time or the signal has come, and commit what came.

    Attributes:
        since: The checkpoint that began the wait.
    """

    node: WaitNode
    visit: int
    since: Checkpoint


@dataclass(frozen=True, slots=True)
class Reopen:
    """A person had a failed execution go on: record it, and go forward.

    Attributes:
        times: How often it was, with this time.
    """

    times: int
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class EnterCompensation:
    """Turned back from outside of the saga: raise the epochs, then undo.

    Attributes:
        cause: An `ErrorInfo` in its stored form.
    """

    cause: Any


@dataclass(frozen=True, slots=True)
class EndTask:
    """A durable task was turned back: it undoes nothing, and ends with the cause as its error."""

    cause: Any


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do. Rides on the commit that came before it."""

    status: Status
    outcome: Any = None
    error: Any = None


Command = (
    RunStep
    | RunBody
    | RunUndo
    | Choose
    | FanOut
    | JoinChildren
    | UndoFanOut
    | UndoJoin
    | Wait
    | Wake
    | Reopen
    | EnterCompensation
    | EndTask
    | Finish
)


def queue_of(command: Command, definition: Definition) -> str | None:
    """Where a command belongs; None for where Celery routes by itself."""
    if isinstance(definition, DurableTask):
        return None
    match command:
        case RunStep():
            return command.step.queue or definition.queue
        case RunUndo():
            return command.undo.queue or definition.queue
        case _:
            return definition.queue


def first_queue(definition: Definition) -> str | None:
    """Where the first command of an execution belongs."""
    if isinstance(definition, DurableTask):
        return None
    first = definition.nodes[0]
    own = first.step.queue if isinstance(first, StepNode) else None
    return own or definition.queue
