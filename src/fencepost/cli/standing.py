"""What an execution waits for, and the commands that have it go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost.cli import output
from fencepost.progress import Progress
from fencepost.records import Checkpoint, CheckpointKind, Execution, Phase, Status
from fencepost.saga.signals import APPROVAL

_CHILDREN = {
    CheckpointKind.FAN_OUT: "the children of",
    CheckpointKind.STOP: "the children that were told to stop, of",
    CheckpointKind.UNDO_FAN_OUT: "the children that undo their work, of",
}


def awaited(execution: Execution) -> str | None:
    """The signal, approval or time that an execution waits for, if any."""
    if execution.status is not Status.WAITING or execution.turned_back is not None:
        return None
    parts = []
    if execution.waits_for is not None:
        kind = "approval" if execution.waits_for.startswith(APPROVAL) else "signal"
        parts.append(f"{kind} {execution.waits_for.removeprefix(APPROVAL)}")
    if execution.wake_at is not None:
        until = f"{output.moment(execution.wake_at)} UTC"
        parts.append(f"until {until}" if parts else until)
    return ", ".join(parts) or None


def facts(
    execution: Execution, chain: Sequence[Checkpoint], run: Sequence[Execution]
) -> Iterator[tuple[str, str]]:
    """What an execution that hasn't ended waits for, and what was decided about it."""
    why = turned_back(execution, chain)
    if why is not None:
        yield "turned", f"back: {why}"
    if execution.forked_from is not None:
        yield "fork of", str(execution.forked_from)
    if execution.status.ended:
        return
    waits = _waits(execution, chain[-1], run)
    if waits is not None:
        yield "waits for", waits
    if execution.paused_at is not None:
        yield "paused", f"since {output.moment(execution.paused_at)} UTC"
    if execution.deadline_at is not None:
        yield "deadline", f"{output.moment(execution.deadline_at)} UTC"
    placed = "by Celery's routing" if execution.queue is None else f"on queue {execution.queue}"
    yield "placed", f"{placed}, priority {execution.priority}"
    if isinstance(execution.directive, dict):
        told = execution.directive
        step = f" {told['step']}" if "step" in told else ""
        yield "decided", f"{told['do']}{step}, by {told['by']}: {told['why']}"


def turned_back(execution: Execution, chain: Sequence[Checkpoint]) -> str | None:
    """Why an execution has to undo its work."""
    cause = execution.turned_back
    if cause is None and execution.phase is Phase.COMPENSATING:
        entered = Progress(chain).turned_at
        cause = None if entered is None else entered.result["failure"]
    return None if cause is None else f"{cause['message']} [{cause['code']}]"


def _waits(execution: Execution, head: Checkpoint, run: Sequence[Execution]) -> str | None:
    if execution.status is Status.QUEUED:
        return "a place under its parent's cap"
    if execution.status is not Status.WAITING:
        return None
    if execution.turned_back is not None:
        return "its parent, to undo its work when its turn comes"
    told = awaited(execution)
    if told is not None or head.kind not in _CHILDREN:
        return told
    of = (execution.execution_id, head.step, head.visit)
    live = sum(
        (e.parent_id, e.parent_step, e.parent_visit) == of and not e.status.ended for e in run
    )
    return f"{_CHILDREN[head.kind]} {head.step}: {live} live"


def ways_on(execution: Execution) -> list[str]:
    """The commands with which a person has an execution go on; the likeliest first."""
    mine = execution.execution_id
    ways: list[str] = []
    if execution.status is Status.PARKED:
        ways += _out_of_parking(execution)
    elif execution.status is Status.WAITING and execution.waits_for is not None:
        name = execution.waits_for
        if name.startswith(APPROVAL):
            asked = f"{mine} {name.removeprefix(APPROVAL)} --why '...'"
            ways += [f"fencepost approve {asked}", f"fencepost reject {asked}"]
        else:
            ways.append(f"fencepost signal {mine} {name} --payload '...'")
    if execution.paused_at is not None and not execution.status.ended:
        ways.insert(0, f"fencepost resume {mine} --why '...'")
    return ways


def _out_of_parking(execution: Execution) -> Iterator[str]:
    mine = execution.execution_id
    error = execution.error if isinstance(execution.error, dict) else {}
    code = str(error.get("code", ""))
    if code.startswith("effect."):
        yield f"fencepost effects {mine}"
    if code == "effect.in-doubt":
        return
    yield f"fencepost retry {mine} --why '...'"
    if execution.phase is not Phase.PAST_PIVOT:
        yield f"fencepost skip {mine} --why '...'"
    yield f"fencepost resolve {mine} --result '...' --why '...'"
    if execution.phase is Phase.FORWARD:
        yield f"fencepost cancel {mine} --why '...'"
