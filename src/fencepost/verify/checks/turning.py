"""Invariant 6: who turned back had a reason, and goes no way but the one that is left.

After a turning point there are undos, and then the steps of the error branch that was taken. Who
was told to turn back (cancelled, too late, told by its parent) takes no branch, and who has
passed its pivot never turns back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from uuid import UUID

from fencepost.verify.facts import CheckpointFact, ExecutionFact, Facts
from fencepost.verify.invariant import Findings
from fencepost.verify.names import (
    CANCELLED,
    DEADLINE_PASSED,
    FROM_ABOVE,
    FROM_OUTSIDE,
    PARENT_FAILED,
    RAISED,
    REOPENED,
    REPINNED,
    STOPPED,
)
from fencepost.verify.people import decided
from fencepost.verify.turns import Turn, forward, turns_of

TURNING = ("compensating", "task-failed")


def check(facts: Facts, found: Findings) -> None:
    """Every chain, row and order to turn back."""
    turned = {
        execution_id: turns_of(execution, facts.chains.get(execution_id, ()))
        for execution_id, execution in facts.executions.items()
    }
    for execution_id, turns in turned.items():
        execution = facts.executions[execution_id]
        for turn in turns:
            _only_backwards(turn, found)
            _why(facts, turned, turn, found)
        for first, second in pairwise(turns):
            _again(first, second, found)
        _reopened(facts, execution, turns, found)
        _as_told(facts, execution, found)
        _row(facts, execution, turns, found)


# -- the way -------------------------------------------------------------------------------


def _only_backwards(turn: Turn, found: Findings) -> None:
    """After the turning point: undos, and then the steps of the branch that was taken."""
    known = {c.step for c in forward(turn.before) if c.kind == "step"}
    known.add(turn.entered.told("failure", "step"))
    in_branch = False
    for entry in turn.after:
        match entry.kind:
            case "step" if turn.branch is not None and entry.step not in known:
                in_branch = True
            case "branch-failed" if turn.branch is not None:
                in_branch = True
            case "undo" | "undo-fan-out" if not in_branch:
                pass
            case _:
                found.violated(
                    "compensation.forward-write",
                    turn.execution.execution_id,
                    f"checkpoint {entry.seq} ({entry.kind} of {entry.step!r}) has no place after"
                    " the turning point",
                    seq=entry.seq,
                    kind=entry.kind,
                    step=entry.step,
                )


def _why(facts: Facts, turned: Mapping[UUID, Sequence[Turn]], turn: Turn, found: Findings) -> None:
    me = turn.execution
    if turn.code in FROM_OUTSIDE and turn.branch is not None:
        found.violated(
            "compensation.branch-taken",
            me.execution_id,
            f"it was told to turn back ({turn.code}), and took the error branch {turn.branch!r}",
            failure=turn.code,
            branch=turn.branch,
        )
    if turn.code in FROM_ABOVE and me.parent_id is not None and me.parent_id in facts.executions:
        goes_on = not turned.get(me.parent_id)
        if turn.code == PARENT_FAILED and goes_on:
            found.violated(
                "compensation.parent-goes-on",
                me.execution_id,
                "it undid its work because its parent failed, and the parent did not",
                parent_id=me.parent_id,
            )
        if turn.code == STOPPED and goes_on and not _stopped(facts, me):
            found.violated(
                "compensation.never-stopped",
                me.execution_id,
                "it undid its work because enough of its siblings had succeeded, and its parent"
                " has stopped none",
                parent_id=me.parent_id,
            )
    if turn.code in (CANCELLED, DEADLINE_PASSED):
        events = facts.events.get(me.execution_id, ())
        if not any(e.name == turn.code and e.epoch < turn.entered.epoch for e in events):
            found.violated(
                "compensation.off-record",
                me.execution_id,
                f"it turned back ({turn.code}), and the audit trail doesn't tell who had it do so",
                seq=turn.entered.seq,
            )


def _stopped(facts: Facts, child: ExecutionFact) -> bool:
    chain = facts.chains.get(child.parent_id, ()) if child.parent_id else ()
    return any(c.kind == "stop" and c.of == (child.parent_step, child.parent_visit) for c in chain)


def _again(first: Turn, second: Turn, found: Findings) -> None:
    if first.ended_by is second.entered and second.code not in FROM_OUTSIDE:
        found.violated(
            "compensation.turned-twice",
            second.execution.execution_id,
            f"it turned back at {first.entered.seq} and again at {second.entered.seq}, and nobody"
            " had told it to",
            failure=second.code,
        )


def _reopened(
    facts: Facts, execution: ExecutionFact, turns: Sequence[Turn], found: Findings
) -> None:
    """A person may have it go on where nothing was undone; and says so."""
    me = execution.execution_id
    entries = [c for c in facts.chains.get(me, ()) if c.kind == "reopened"]
    after_a_turn = {turn.ended_by.seq for turn in turns if turn.ended_by and turn.reopened}
    undone = {undo.seq for turn in turns for undo in turn.undone}
    decided = sum(event.name == REOPENED for event in facts.events.get(me, ()))
    for number, entry in enumerate(entries, start=1):
        wrong = None
        if entry.seq not in after_a_turn:
            wrong = "it had not failed"
        elif any(seq < entry.seq for seq in undone):
            wrong = "its work was undone"
        elif number > decided:
            wrong = "the audit trail tells of nobody who decided that"
        if wrong is not None:
            found.violated(
                "compensation.reopened",
                me,
                f"it went on at {entry.seq} after it had failed, and {wrong}",
                seq=entry.seq,
            )


# -- who was told --------------------------------------------------------------------------


def _as_told(facts: Facts, execution: ExecutionFact, found: Findings) -> None:
    """Who was shut out to turn back does that next, and nothing else."""
    me = execution.execution_id
    events = facts.events.get(me, ())
    told = {e.epoch: e.name for e in events if e.name in (CANCELLED, DEADLINE_PASSED)}
    found.examined("orders to turn back", len(told))
    # Moving to another version shuts the owner out as well, and turns nobody back.
    repinned = {e.epoch for e in events if e.name == REPINNED}
    shut_out = {
        tenure.epoch: RAISED
        for tenure in facts.timelines[me].tenures
        if tenure.raised_by is not None and tenure.owner is None and tenure.epoch not in repinned
    }
    for epoch, name in sorted((shut_out | told).items()):
        wrong = _went_on(facts, execution, epoch, told=epoch in told)
        if wrong is not None:
            found.violated(
                "compensation.not-turned-back",
                me,
                f"it had to turn back at epoch {epoch} ({name}), and {wrong}",
                epoch=epoch,
                status=execution.status,
            )


def _went_on(facts: Facts, execution: ExecutionFact, epoch: int, *, told: bool) -> str | None:
    chain = facts.chains.get(execution.execution_id, ())
    following = next((c for c in chain if c.epoch > epoch and not _given(facts, c)), None)
    if following is not None:
        if following.kind in TURNING:
            return None
        return f"checkpoint {following.seq} is a {following.kind} of {following.step!r}"
    if execution.ended:
        # One that had ended when its parent turned back may have nothing to undo.
        return f"it is {execution.status} without having done so" if told else None
    return None if execution.turned_back else "its row doesn't say so any more"


def _given(facts: Facts, entry: CheckpointFact) -> bool:
    """Whether a person has completed the step that was in hand, so that it can be undone."""
    is_step = entry.kind == "step"
    return is_step and decided(facts, entry.execution_id, "resolve", entry.step_key)


# -- the row -------------------------------------------------------------------------------


def _row(facts: Facts, execution: ExecutionFact, turns: Sequence[Turn], found: Findings) -> None:
    chain = facts.chains.get(execution.execution_id, ())
    current = turns[-1] if turns and not turns[-1].reopened else None
    for code, wrong in (
        ("compensation.past-pivot", _past_pivot(execution, chain, current)),
        ("compensation.phase", _phase(execution, current)),
        ("compensation.status", _status(execution, chain, turns, current)),
    ):
        if wrong is not None:
            found.violated(
                code,
                execution.execution_id,
                f"it is {execution.status} ({execution.phase}), and {wrong}",
            )


def _past_pivot(
    execution: ExecutionFact, chain: Sequence[CheckpointFact], current: Turn | None
) -> str | None:
    if execution.phase != "past-pivot":
        return None
    if current is not None:
        return "it turned back after its pivot"
    if any(c.kind in ("undo", "undo-fan-out") for c in chain):
        return "something was undone"
    if execution.status in ("failed", "compensated"):
        return "after a pivot there is no way to end so"
    return None


def _phase(execution: ExecutionFact, current: Turn | None) -> str | None:
    if execution.phase == "forward" and current is not None:
        return "its chain has turned back"
    live_and_back = execution.phase == "compensating" and not execution.ended
    if live_and_back and current is None and not execution.turned_back:
        return "neither its chain nor its row tells why it turned back"
    return None


def _status(
    execution: ExecutionFact,
    chain: Sequence[CheckpointFact],
    turns: Sequence[Turn],
    current: Turn | None,
) -> str | None:
    if execution.status == "failed" and chain and chain[-1].kind == "task-failed":
        # A durable task undoes nothing: its body is told of errors, and decides.
        return None
    undone = any(turn.undone for turn in turns)
    told = current is not None and current.code in FROM_ABOVE
    wrong = {
        "its chain never turned back": current is None,
        "nothing was undone": execution.status == "compensated" and not (undone or told),
        "something was undone": execution.status == "failed" and undone,
        "it was its parent that had it turn back": execution.status == "failed" and told,
    }
    if execution.status in ("failed", "compensated"):
        return next((text for text, is_so in wrong.items() if is_so), None)
    on_and_well = execution.status in ("succeeded", "continued")
    if on_and_well and current is not None and not any(c.kind == "step" for c in current.after):
        return "no branch led on after its compensation"
    return None
