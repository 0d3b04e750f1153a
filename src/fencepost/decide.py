"""What an execution does next: a pure function of its saga, its phase and its chain.

The chain is all there is: two workers that read the same chain decide the same. Nothing here
asks a clock, a store or a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from fencepost.durable import DurableTask
from fencepost.errors import CheckpointForkError
from fencepost.failure import ErrorInfo, Failure
from fencepost.records import Checkpoint, CheckpointKind, Phase, Status
from fencepost.saga import ErrorBranch, MapNode, Node, Saga, Step, StepNode, TerminalKind

Definition = Saga[Any, Any] | DurableTask[Any, Any]

RETURN_STEP = "return"
"""The step under which the end of a durable task's body is recorded."""

CANCELLED = "execution.cancelled"
DEADLINE_PASSED = "execution.deadline-passed"
PARENT_FAILED = "saga.parent-failed"
"""The code under which a child undoes its work because its parent failed."""
STOPPED = "saga.stopped"
"""The code under which a child undoes its work because enough of its siblings have succeeded."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """Run a step's body and commit its result."""

    step: Step[Any, Any]
    visit: int
    value: Any
    terminal: TerminalKind | None = None
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
class FanOut:
    """Insert the children of a map node, and wait for them."""

    node: MapNode
    visit: int
    value: Any


@dataclass(frozen=True, slots=True)
class Join:
    """Wait for the children of a map node; once all have ended, commit what came of them."""

    node: MapNode
    visit: int


@dataclass(frozen=True, slots=True)
class UndoFanOut:
    """Let the children of a map node undo their work, and wait for them."""

    node: MapNode
    visit: int


@dataclass(frozen=True, slots=True)
class UndoJoin:
    """Wait for the children's undoing; once all have ended, record that it is done."""

    node: MapNode
    visit: int


@dataclass(frozen=True, slots=True)
class EnterCompensation:
    """A child whose parent failed: raise the epochs, then undo."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do. Rides on the commit that came before it."""

    status: Status
    outcome: Any = None
    error: Any = None


Command = (
    RunStep | RunBody | RunUndo | FanOut | Join | UndoFanOut | UndoJoin | EnterCompensation | Finish
)


@dataclass(frozen=True)
class Progress:
    """An execution's chain, with the questions that are asked of it."""

    chain: tuple[Checkpoint, ...]

    def find(self, kind: CheckpointKind, step: str, visit: int = 1) -> Checkpoint | None:
        """The checkpoint of that kind for a visit to a step."""
        for entry in self.chain:
            if (entry.kind, entry.step, entry.visit) == (kind, step, visit):
                return entry
        return None

    @property
    def start(self) -> Checkpoint:
        """The root of the chain; its result is the saga's input."""
        return self.chain[0]

    @property
    def results(self) -> Mapping[str, Any]:
        """Recorded results of steps and joins, by step name."""
        return {
            entry.step: entry.result
            for entry in self.chain
            if entry.kind in (CheckpointKind.STEP, CheckpointKind.JOIN)
        }

    @property
    def compensating(self) -> Checkpoint | None:
        """The checkpoint that began the compensation.

        The last one, where a child that had ended well by its error branch is told later that
        its parent failed.
        """
        entered = (e for e in reversed(self.chain) if e.kind is CheckpointKind.COMPENSATING)
        return next(entered, None)

    @property
    def undone(self) -> bool:
        """Whether there was anything to undo."""
        return any(entry.kind is CheckpointKind.UNDO for entry in self.chain)


def decide(saga: Definition, phase: Phase, chain: Iterable[Checkpoint]) -> Command:
    """The next command of an execution.

    Args:
        saga: Its definition (a saga or a durable task), of the version that it is pinned to.
        phase: Forward, or compensating.
        chain: All its checkpoints, oldest first.

    Raises:
        CheckpointForkError: The chain can't have come from this saga.
    """
    progress = Progress(tuple(chain))
    if not progress.chain or progress.start.kind is not CheckpointKind.START:
        raise CheckpointForkError("the chain has no root", saga=saga.name)
    if isinstance(saga, DurableTask):
        return _task(saga, progress)
    if phase is Phase.FORWARD:
        return _forward(saga, progress)
    entered = progress.compensating
    if entered is None:
        return EnterCompensation()
    failure = entered.result["failure"]
    branch = saga.branch_named(entered.result["branch"])
    undo = _next_undo(saga, progress, branch)
    if undo is not None:
        return undo
    if branch is not None and branch.nodes:
        return _in_branch(progress, branch, failure)
    return Finish(_failed_status(progress, failure), error=_error_of(failure))


def _task(task: DurableTask[Any, Any], progress: Progress) -> Command:
    returned = progress.find(CheckpointKind.STEP, RETURN_STEP)
    if returned is not None:
        return Finish(Status.SUCCEEDED, outcome=returned.result)
    failed = progress.find(CheckpointKind.TASK_FAILED, RETURN_STEP)
    if failed is not None:
        return Finish(Status.FAILED, error=failed.result)
    return RunBody(task, progress.start.result)


def _forward(saga: Saga[Any, Any], progress: Progress) -> Command:
    value = progress.start.result
    for node in saga.nodes:
        is_map = isinstance(node, MapNode)
        done = progress.find(CheckpointKind.JOIN if is_map else CheckpointKind.STEP, node.name)
        if done is None:
            return _next_forward(node, progress, value)
        value = done.result
        if isinstance(node, StepNode) and node.terminal is TerminalKind.CONTINUE_AS_NEW:
            return Finish(Status.CONTINUED, outcome=value)
    return Finish(Status.SUCCEEDED, outcome=value)


def _next_forward(node: Node, progress: Progress, value: Any) -> Command:
    match node:
        case StepNode():
            return RunStep(node.step, 1, value, node.terminal)
        case MapNode():
            fanned_out = progress.find(CheckpointKind.FAN_OUT, node.name)
            return Join(node, 1) if fanned_out else FanOut(node, 1, value)
        case _:
            assert_never(node)


def _next_undo(
    saga: Saga[Any, Any], progress: Progress, branch: ErrorBranch[Any, Any] | None
) -> Command | None:
    nodes = {node.name: node for node in saga.nodes}
    for entry in reversed(progress.chain):
        node = nodes.get(entry.step)
        if node is None or progress.find(CheckpointKind.UNDO, entry.step, entry.visit):
            continue
        match node, entry.kind:
            case StepNode(), CheckpointKind.STEP:
                undo = saga.undo_of(node.step, branch)
                if undo is not None:
                    return RunUndo(node.step, undo, entry.visit, entry.result)
            case MapNode(), CheckpointKind.FAN_OUT if node.child.compensable:
                started = progress.find(CheckpointKind.UNDO_FAN_OUT, entry.step, entry.visit)
                return UndoJoin(node, entry.visit) if started else UndoFanOut(node, entry.visit)
            case _:
                pass
    return None


def _in_branch(progress: Progress, branch: ErrorBranch[Any, Any], failure: Any) -> Command:
    failed = next((e for e in progress.chain if e.kind is CheckpointKind.BRANCH_FAILED), None)
    if failed is not None:
        return Finish(_failed_status(progress, failure), error=failed.result)
    value = failure
    for node in branch.nodes:
        done = progress.find(CheckpointKind.STEP, node.name)
        if done is None:
            return RunStep(node.step, 1, value, node.terminal, in_branch=True)
        value = done.result
    error = _error_of(failure)
    match branch.nodes[-1].terminal:
        case TerminalKind.CONTINUE_AS_NEW:
            return Finish(Status.CONTINUED, outcome=value, error=error)
        case TerminalKind.FINISH:
            return Finish(Status.SUCCEEDED, outcome=value)
        case None:
            return Finish(_failed_status(progress, failure), outcome=value, error=error)


def _failed_status(progress: Progress, failure: Any) -> Status:
    told_by_parent = failure["code"] == PARENT_FAILED
    return Status.COMPENSATED if progress.undone or told_by_parent else Status.FAILED


def _error_of(failure: Any) -> Any:
    names = {*ErrorInfo.model_fields, "step", "visit"}
    return {name: value for name, value in failure.items() if name in names}


def failure_record(saga_input: Any, step: str, visit: int, info: ErrorInfo) -> Any:
    """The stored form of a `Failure`: what the first step of an error branch is given."""
    failure = Failure[Any](input=saga_input, step=step, visit=visit, **info.model_dump())
    return failure.model_dump(mode="json")
