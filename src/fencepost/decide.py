"""What an execution does next: a pure function of its saga, its phase and its chain.

The chain is all there is: two workers that read the same chain decide the same. Nothing here
asks a clock, a store or a message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, assert_never

from fencepost.commands import (
    Choose,
    Command,
    Definition,
    EndTask,
    EnterCompensation,
    FanOut,
    Finish,
    JoinChildren,
    Reopen,
    RunBody,
    RunStep,
    RunUndo,
    UndoFanOut,
    UndoJoin,
    Wait,
    Wake,
)
from fencepost.durable import DurableTask
from fencepost.errors import CheckpointForkError
from fencepost.failure import ErrorInfo, Failure
from fencepost.progress import Progress
from fencepost.records import Checkpoint, CheckpointKind, Phase, Status
from fencepost.saga import (
    BranchNode,
    ErrorBranch,
    LoopNode,
    MapNode,
    Node,
    Saga,
    StepNode,
    TerminalKind,
    WaitKind,
    WaitNode,
)

RETURN_STEP = "return"
"""The step under which the end of a durable task's body is recorded."""

CANCELLED = "execution.cancelled"
DEADLINE_PASSED = "execution.deadline-passed"
PARENT_FAILED = "saga.parent-failed"
"""The code under which a child undoes its work because its parent failed."""
STOPPED = "saga.stopped"
"""The code under which a child undoes its work because enough of its siblings have succeeded."""

TOLD_BY_PARENT = frozenset({PARENT_FAILED, STOPPED})


def told(code: str, message: str) -> Any:
    """Why an execution is turned back, as it is stored."""
    return ErrorInfo(error_type="", code=code, message=message).model_dump(mode="json")


def decide(
    saga: Definition,
    phase: Phase,
    chain: Iterable[Checkpoint],
    turned_back: Any = None,
    directive: Any = None,
) -> Command:
    """The next command of an execution.

    Args:
        saga: Its definition (a saga or a durable task), of the version that it is pinned to.
        phase: The direction in which it moves.
        chain: All its checkpoints, oldest first.
        turned_back: Why it has to turn back, where that isn't in the chain yet.
        directive: What a person has decided. About a step it is for the step's command.

    Raises:
        CheckpointForkError: The chain can't have come from this saga.
    """
    progress = Progress(chain)
    if not progress.chain or progress.start.kind is not CheckpointKind.START:
        raise CheckpointForkError("the chain has no root", saga=saga.name)
    if isinstance(saga, DurableTask):
        return _task(saga, progress, turned_back)
    if turned_back is not None:
        return EnterCompensation(turned_back)
    if directive is not None and directive["do"] == "reopen":
        times = sum(entry.kind is CheckpointKind.REOPENED for entry in progress.chain) + 1
        return Reopen(times, by=directive["by"], why=directive["why"])
    if phase is not Phase.COMPENSATING:
        return Forward(progress).through(saga)
    return _back(saga, progress)


def _back(saga: Saga[Any, Any], progress: Progress) -> Command:
    entered = progress.turned_at
    if entered is None:
        raise CheckpointForkError("it compensates, and its chain never turned back", saga=saga.name)
    failure = entered.result["failure"]
    branch = saga.branch_named(entered.result["branch"])
    undo = _next_undo(saga, progress, entered, branch)
    if undo is not None:
        return undo
    if branch is not None and branch.nodes:
        return _in_branch(progress, entered, branch, failure)
    return Finish(_failed_status(progress, failure), error=_error_of(failure))


def _task(task: DurableTask[Any, Any], progress: Progress, turned_back: Any) -> Command:
    returned = progress.find(CheckpointKind.STEP, RETURN_STEP)
    if returned is not None:
        return Finish(Status.SUCCEEDED, outcome=returned.result)
    failed = progress.find(CheckpointKind.TASK_FAILED, RETURN_STEP)
    if failed is not None:
        return Finish(Status.FAILED, error=failed.result)
    if turned_back is not None:
        return EndTask(turned_back)
    return RunBody(task, progress.start.result)


@dataclass(frozen=True, slots=True)
class Passed:
    """Everything up to here is in the chain, and this is what came of it."""

    value: Any


class Forward:
    """Walks a saga's nodes along a chain, up to the first thing that the chain doesn't have.

    Args:
        progress: The chain.

    Attributes:
        seen: Checkpoints that the walk came past.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._visits: Counter[str] = Counter()
        self.seen: set[int] = {0}

    def through(self, saga: Saga[Any, Any]) -> Command:
        """The next command on the way forward."""
        reached = self._along(saga.nodes, self._progress.start.result)
        if isinstance(reached, Passed):
            return Finish(Status.SUCCEEDED, outcome=reached.value)
        return reached

    def _along(self, nodes: Sequence[Node], value: Any) -> Command | Passed:
        for node in nodes:
            reached = self._past(node, value)
            if not isinstance(reached, Passed):
                return reached
            value = reached.value
        return Passed(value)

    def _past(self, node: Node, value: Any) -> Command | Passed:
        if isinstance(node, LoopNode):
            return self._loop(node, value)
        self._visits[node.name] += 1
        visit = self._visits[node.name]
        match node:
            case StepNode():
                return self._step(node, visit, value)
            case MapNode():
                return self._map(node, visit, value)
            case BranchNode():
                return self._branch(node, visit, value)
            case WaitNode():
                return self._wait(node, visit, value)
            case _:
                assert_never(node)

    def _find(self, kind: CheckpointKind, name: str, visit: int) -> Checkpoint | None:
        found = self._progress.find(kind, name, visit)
        if found is not None:
            self.seen.add(found.seq)
        return found

    def _step(self, node: StepNode, visit: int, value: Any) -> Command | Passed:
        done = self._find(CheckpointKind.STEP, node.name, visit)
        if done is None:
            return RunStep(node.step, visit, value, node.terminal, node.pivot)
        if node.terminal is TerminalKind.CONTINUE_AS_NEW:
            return Finish(Status.CONTINUED, outcome=done.result)
        return Passed(done.result)

    def _map(self, node: MapNode, visit: int, value: Any) -> Command | Passed:
        fanned_out = self._find(CheckpointKind.FAN_OUT, node.name, visit)
        stopped = self._find(CheckpointKind.STOP, node.name, visit)
        joined = self._find(CheckpointKind.JOIN, node.name, visit)
        if joined is not None:
            return Passed(joined.result)
        if fanned_out is not None:
            return JoinChildren(node, visit, stopped is not None)
        return FanOut(node, visit, value)

    def _branch(self, node: BranchNode, visit: int, value: Any) -> Command | Passed:
        chosen = self._find(CheckpointKind.DECISION, node.name, visit)
        if chosen is None:
            return Choose(node, visit, value)
        path = node.cases.get(chosen.result["case"], node.default)
        if path is None:
            raise CheckpointForkError(
                f"{node.name!r} took the path of {chosen.result['case']!r}, which isn't there",
                step=node.name,
            )
        return self._along(path.nodes, value)

    def _loop(self, node: LoopNode, value: Any) -> Command | Passed:
        for passes in count(1):
            reached = self._along(node.body.nodes, value)
            if not isinstance(reached, Passed):
                return reached
            value = reached.value
            self._visits[node.name] += 1
            visit = self._visits[node.name]
            answer = self._find(CheckpointKind.DECISION, node.name, visit)
            if answer is None:
                return Choose(node, visit, value, passes)
            if not answer.result["again"]:
                break
        return Passed(value)

    def _wait(self, node: WaitNode, visit: int, value: Any) -> Command | Passed:
        since = self._find(CheckpointKind.WAIT, node.name, visit)
        woken = self._find(CheckpointKind.WOKEN, node.name, visit)
        if woken is not None:
            return Passed(woken.result["payload"] if node.kind is WaitKind.SIGNAL else value)
        return Wait(node, visit, value) if since is None else Wake(node, visit, since)


def _next_undo(
    saga: Saga[Any, Any],
    progress: Progress,
    entered: Checkpoint,
    branch: ErrorBranch[Any, Any] | None,
) -> Command | None:
    nodes = {node.name: node for node in saga.all_nodes()}
    for entry in reversed(progress.chain[: entered.seq]):
        node = nodes.get(entry.step)
        # What a fork has inherited (epoch 0) is the original's to undo.
        if node is None or not entry.epoch or _is_undone(progress, entry):
            continue
        match node, entry.kind:
            case StepNode(), CheckpointKind.STEP:
                undo = saga.undo_of(node.step, branch)
                if undo is not None:
                    return RunUndo(node.step, undo, entry.visit, entry.result)
            case MapNode(), CheckpointKind.FAN_OUT if _to_undo(node, progress, entry):
                return _undo_of_children(node, progress, entered, entry.visit)
            case _:
                pass
    return None


def _undo_of_children(
    node: MapNode, progress: Progress, entered: Checkpoint, visit: int
) -> UndoFanOut | UndoJoin:
    begun = [
        entry.seq
        for entry in progress.chain
        if entry.kind is CheckpointKind.UNDO_FAN_OUT
        and (entry.step, entry.visit) == (node.name, visit)
    ]
    # Turning back again has stopped the children that were told before: they are told anew.
    if begun and begun[-1] > entered.seq:
        return UndoJoin(node, visit)
    return UndoFanOut(node, visit, times=len(begun) + 1)


def _is_undone(progress: Progress, entry: Checkpoint) -> bool:
    return progress.find(CheckpointKind.UNDO, entry.step, entry.visit) is not None


def _to_undo(node: MapNode, progress: Progress, entry: Checkpoint) -> bool:
    # Children that were not joined may still run, whether or not they have anything to undo.
    joined = progress.find(CheckpointKind.JOIN, entry.step, entry.visit)
    children = (entry.result or {}).get("children", 0)
    return children > 0 and (node.child.compensable or joined is None)


def _in_branch(
    progress: Progress, entered: Checkpoint, branch: ErrorBranch[Any, Any], failure: Any
) -> Command:
    since = progress.chain[entered.seq :]
    failed = next((e for e in since if e.kind is CheckpointKind.BRANCH_FAILED), None)
    if failed is not None:
        return Finish(_failed_status(progress, failure), error=failed.result)
    value = failure
    for node in branch.nodes:
        earlier = progress.count(CheckpointKind.STEP, node.name, before=entered.seq)
        done = progress.find(CheckpointKind.STEP, node.name, earlier + 1)
        if done is None:
            return RunStep(node.step, earlier + 1, value, node.terminal, in_branch=True)
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
    told_by_parent = failure["code"] in TOLD_BY_PARENT
    return Status.COMPENSATED if progress.undone or told_by_parent else Status.FAILED


def _error_of(failure: Any) -> Any:
    names = {*ErrorInfo.model_fields, "step", "visit"}
    return {name: value for name, value in failure.items() if name in names}


def failure_record(saga_input: Any, step: str, visit: int, info: ErrorInfo) -> Any:
    """The stored form of a `Failure`: what the first step of an error branch is given."""
    failure = Failure[Any](input=saga_input, step=step, visit=visit, **info.model_dump())
    return failure.model_dump(mode="json")


def interrupted(saga: Saga[Any, Any], chain: Sequence[Checkpoint]) -> RunStep | None:
    """The step that was in hand when an execution was turned back, if it was a step.

    It isn't completed, so it isn't undone: what it has done in the world is for a person.
    """
    progress = Progress(chain)
    entered = progress.turned_at
    if entered is None:
        command = Forward(progress).through(saga)
    else:
        branch = saga.branch_named(entered.result["branch"])
        undoing = _next_undo(saga, progress, entered, branch) is not None
        if undoing or branch is None or not branch.nodes:
            return None
        command = _in_branch(progress, entered, branch, entered.result["failure"])
    return command if isinstance(command, RunStep) else None


FORWARD_KINDS = frozenset(
    {
        CheckpointKind.STEP,
        CheckpointKind.FAN_OUT,
        CheckpointKind.JOIN,
        CheckpointKind.DECISION,
        CheckpointKind.WAIT,
        CheckpointKind.WOKEN,
        CheckpointKind.STOP,
    }
)


def misfit(saga: Definition, phase: Phase, chain: Sequence[Checkpoint]) -> str | None:
    """Why a chain can't be continued by another version of its saga; None if it can.

    A saga on its way forward can move to a version under which everything that is on record is
    come past in the same order. One that undoes its work has to do so as it was written.
    """
    if isinstance(saga, DurableTask):
        return None  # its replay says so, and parks where the code does something else
    if phase is Phase.COMPENSATING:
        return "it undoes its work"
    walk = Forward(Progress(chain))
    try:
        reached = walk.through(saga)
    except CheckpointForkError as problem:
        return problem.message
    forward = (entry for entry in chain if entry.kind in FORWARD_KINDS)
    missed = [entry for entry in forward if entry.seq not in walk.seen]
    if missed:
        return f"{missed[0].step!r} is on record, and this version doesn't come to it"
    if isinstance(reached, Finish):
        return "nothing would be left to do"
    return None
