"""Invariant 6, as far as chains show it: what was done is undone once, newest first.

Nothing here knows a saga's definition. Whether a step can be undone is learnt from the facts:
where one execution of a saga's version undid it, every other one must have.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any
from uuid import UUID

from fencepost.verify.facts import CheckpointFact, ExecutionFact, Facts
from fencepost.verify.invariant import Findings
from fencepost.verify.names import PARENT_FAILED

Visit = tuple[str, int]

NOTE = (
    "a step that no execution of the same saga's version has undone counts as having nothing"
    " to undo: the stored facts don't tell more"
)


@dataclass(frozen=True)
class Compensation:
    """A chain that turned back, cut at the turning point."""

    execution: ExecutionFact
    entered: CheckpointFact
    before: tuple[CheckpointFact, ...]
    after: tuple[CheckpointFact, ...]

    @property
    def branch(self) -> str | None:
        """The error branch that was taken."""
        branch: str | None = _field(self.entered, "branch")
        return branch

    @property
    def done(self) -> Mapping[Visit, int]:
        """What had been done: the place in the chain of each completed step and fan-out."""
        return {(c.step, c.visit): c.seq for c in self.before if c.kind in ("step", "fan-out")}

    @property
    def undone(self) -> list[CheckpointFact]:
        """The undos, in the order of the chain."""
        return [c for c in self.after if c.kind == "undo"]


def check(facts: Facts, found: Findings) -> None:
    """Every execution that turned back, and the statuses that claim that one did."""
    compensations = [c for e in facts.executions.values() if (c := _turned_back(facts, e))]
    undoable = _undoable(compensations)
    for compensation in compensations:
        found.examined("compensated executions")
        found.examined("undone steps", len(compensation.undone))
        found.note(NOTE)
        _once_and_newest_first(compensation, found)
        _only_backwards(compensation, found)
        _fenced_out(facts, compensation, found)
        _children(facts, compensation, found)
        if compensation.execution.ended:
            _complete(compensation, undoable, found)
    for execution_id, chain in facts.chains.items():
        _nothing_undone_going_forward(execution_id, chain, found)
    _statuses(facts, {c.execution.execution_id: c for c in compensations}, found)


def _turned_back(facts: Facts, execution: ExecutionFact) -> Compensation | None:
    chain = facts.chains.get(execution.execution_id, ())
    for place, entry in enumerate(chain):
        if entry.kind == "compensating":
            return Compensation(execution, entry, chain[:place], chain[place + 1 :])
    return None


def _undoable(compensations: list[Compensation]) -> Mapping[tuple[str, str, Any], set[Visit]]:
    undoable: dict[tuple[str, str, Any], set[Visit]] = defaultdict(set)
    for one in compensations:
        key = (one.execution.saga, one.execution.version, one.branch)
        undoable[key].update((c.step, c.visit) for c in one.undone)
    return undoable


def _once_and_newest_first(one: Compensation, found: Findings) -> None:
    me, done = one.execution.execution_id, one.done
    for (step, visit), count in Counter((c.step, c.visit) for c in one.undone).items():
        if count > 1:
            found.violated(
                "compensation.undone-twice",
                me,
                f"{step!r} was undone {count} times",
                step=step,
                visit=visit,
            )
    for undo in one.undone:
        if (undo.step, undo.visit) not in done:
            found.violated(
                "compensation.nothing-to-undo",
                me,
                f"{undo.step!r} was undone, and had not been completed before",
                step=undo.step,
                seq=undo.seq,
            )
    known = [c for c in one.undone if (c.step, c.visit) in done]
    for first, second in pairwise(known):
        if done[first.step, first.visit] < done[second.step, second.visit]:
            found.violated(
                "compensation.order",
                me,
                f"{first.step!r} was undone before {second.step!r}, which was completed later",
                undone=[c.step for c in known],
            )


def _nothing_undone_going_forward(
    execution_id: UUID, chain: Sequence[CheckpointFact], found: Findings
) -> None:
    forward = takewhile(lambda c: c.kind != "compensating", chain)
    early = [c.step for c in forward if c.kind in ("undo", "undo-fan-out")]
    if early:
        found.violated(
            "compensation.too-early",
            execution_id,
            "steps were undone while it went forward",
            steps=early,
        )


def _only_backwards(one: Compensation, found: Findings) -> None:
    """After the turning point: undos, and then the steps of the branch that was taken."""
    forward = {c.step for c in one.before} | {one.entered.step}
    in_branch = False
    for entry in one.after:
        match entry.kind:
            case "step" if one.branch is not None and entry.step not in forward:
                in_branch = True
            case "branch-failed" if one.branch is not None:
                in_branch = True
            case "undo" | "undo-fan-out" if not in_branch:
                pass
            case "compensating" if _field(entry, "failure", "code") == PARENT_FAILED:
                # It had ended well by its branch, and then its parent failed.
                pass
            case _:
                found.violated(
                    "compensation.forward-write",
                    one.execution.execution_id,
                    f"checkpoint {entry.seq} ({entry.kind} of {entry.step!r}) has no place after"
                    " the turning point",
                    seq=entry.seq,
                    kind=entry.kind,
                    step=entry.step,
                )


def _fenced_out(facts: Facts, one: Compensation, found: Findings) -> None:
    """Its own epoch and every descendant's were raised before anything was undone."""
    me = one.execution.execution_id
    shut_out = [one.execution, *facts.descendants(me)]
    for execution in shut_out:
        tenures = facts.timelines[execution.execution_id].tenures
        if not any(tenure.raised_by == str(me) for tenure in tenures):
            found.violated(
                "compensation.not-fenced",
                execution.execution_id,
                "its epoch was not raised before the undoing began",
                compensating=me,
            )


def _children(facts: Facts, one: Compensation, found: Findings) -> None:
    me = one.execution.execution_id
    undone = {(c.step, c.visit) for c in one.undone}
    for child in facts.children.get(me, ()):
        of = (child.parent_step or "", child.parent_visit or 0)
        if of in undone and child.status not in ("compensated", "failed", "continued"):
            found.violated(
                "compensation.child-kept",
                child.execution_id,
                f"it is {child.status}, and the fan-out that started it is undone",
                parent_id=me,
                step=child.parent_step,
            )


def _complete(
    one: Compensation, undoable: Mapping[tuple[str, str, Any], set[Visit]], found: Findings
) -> None:
    saga, version = one.execution.saga, one.execution.version
    # What is undone without a branch declares its compensation itself, for every branch.
    owed = undoable.get((saga, version, one.branch), set()) | undoable.get(
        (saga, version, None), set()
    )
    undone = {(c.step, c.visit) for c in one.undone}
    announced = {(c.step, c.visit) for c in one.after if c.kind == "undo-fan-out"}
    for step, visit in sorted((owed & one.done.keys() | announced) - undone):
        found.violated(
            "compensation.not-undone",
            one.execution.execution_id,
            f"{step!r} was completed, can be undone, and is not undone",
            step=step,
            visit=visit,
        )


def _statuses(facts: Facts, compensations: Mapping[Any, Compensation], found: Findings) -> None:
    for execution in facts.executions.values():
        one = compensations.get(execution.execution_id)
        wrong = _contradiction(facts, execution, one)
        if wrong is not None:
            found.violated(
                "compensation.status",
                execution.execution_id,
                f"it is {execution.status}, and {wrong}",
            )
        if one is not None and _told_by_parent(one) and execution.parent_id is not None:
            parent = execution.parent_id
            if parent in facts.executions and parent not in compensations:
                found.violated(
                    "compensation.parent-goes-on",
                    execution.execution_id,
                    "it undid its work because its parent failed, and the parent did not",
                    parent_id=parent,
                )


def _told_by_parent(one: Compensation) -> bool:
    return any(
        c.kind == "compensating" and _field(c, "failure", "code") == PARENT_FAILED
        for c in (one.entered, *one.after)
    )


def _contradiction(facts: Facts, execution: ExecutionFact, one: Compensation | None) -> str | None:
    chain = facts.chains.get(execution.execution_id, ())
    match execution.status:
        case "failed" if chain and chain[-1].kind == "task-failed":
            # A durable task undoes nothing: its body is told of errors, and decides.
            return None
        case "compensated" | "failed" if one is None:
            return "its chain never turned back"
        case "compensated" if one is not None and not (one.undone or _told_by_parent(one)):
            return "nothing was undone"
        case "failed" if one is not None and one.undone:
            return "something was undone"
        case "succeeded" | "continued" if one is not None:
            if not any(c.kind == "step" for c in one.after):
                return "no branch led on after its compensation"
    return None


def _field(checkpoint: CheckpointFact, *path: str) -> Any:
    value = checkpoint.result
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
