"""Invariant 6, as far as chains show it: what was done is undone once, newest first.

Nothing here knows a saga's definition. Whether a step can be undone is learnt from the facts:
where one execution of a saga's version undid it, every other one must have. Which way a chain
may go once it has turned back is for `turning`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fencepost.verify.facts import CheckpointFact, EventFact, ExecutionFact, Facts
from fencepost.verify.invariant import Findings
from fencepost.verify.names import RAISED
from fencepost.verify.turns import Turn, Visit, forward, turns_of

NOTE = (
    "a step that no execution of the same saga's version has undone counts as having nothing"
    " to undo: the stored facts don't tell more"
)
BY_PEOPLE = ("skipped", "resolved")


def check(facts: Facts, found: Findings) -> None:
    """Every execution that turned back, once or several times."""
    turned = {
        execution_id: turns
        for execution_id, execution in facts.executions.items()
        if (turns := turns_of(execution, facts.chains.get(execution_id, ())))
    }
    undoable = _undoable(turn for turns in turned.values() for turn in turns)
    for turns in turned.values():
        found.note(NOTE)
        found.examined("compensated executions")
        _once(turns, found)
        for turn in turns:
            found.examined("undone steps", len(turn.undone))
            _decided_by_people(turn, found)
            _newest_first(turn, found)
            _fenced_out(facts, turn, found)
            if turn.over:
                _complete(turns, turn, undoable, found)
        _children(facts, turns, found)
    for chain in facts.chains.values():
        _nothing_undone_going_forward(chain, found)


# -- once, and in order --------------------------------------------------------------------


def _done(turn: Turn) -> Mapping[Visit, CheckpointFact]:
    """What had been done, by itself or by those whose chain it has inherited."""
    return {c.of: c for c in turn.before if c.kind in ("step", "fan-out")}


def _once(turns: Sequence[Turn], found: Findings) -> None:
    counts = Counter(undo.of for turn in turns for undo in turn.undone)
    for (step, visit), count in counts.items():
        if count > 1:
            found.violated(
                "compensation.undone-twice",
                turns[0].execution.execution_id,
                f"{step!r} was undone {count} times",
                step=step,
                visit=visit,
            )


def _newest_first(turn: Turn, found: Findings) -> None:
    me, done = turn.execution.execution_id, _done(turn)
    for undo in turn.undone:
        original = done.get(undo.of)
        if original is None:
            found.violated(
                "compensation.nothing-to-undo",
                me,
                f"{undo.step!r} was undone, and had not been completed before",
                step=undo.step,
                visit=undo.visit,
                seq=undo.seq,
            )
        elif original.inherited:
            found.violated(
                "compensation.inherited",
                me,
                f"{undo.step!r} was undone, and is the work of the execution that it was forked"
                " from",
                step=undo.step,
                seq=undo.seq,
                forked_from=turn.execution.forked_from,
            )
    known = [undo for undo in turn.undone if undo.of in done]
    for first, second in pairwise(known):
        if done[first.of].seq < done[second.of].seq:
            found.violated(
                "compensation.order",
                me,
                f"{first.step!r} was undone before {second.step!r}, which was completed later",
                undone=[f"{c.step}:{c.visit}" for c in known],
            )


def _nothing_undone_going_forward(chain: Sequence[CheckpointFact], found: Findings) -> None:
    early = [c for c in forward(chain) if c.kind in ("undo", "undo-fan-out")]
    if early:
        found.violated(
            "compensation.too-early",
            early[0].execution_id,
            "steps were undone while it went forward",
            steps=[c.step for c in early],
        )


def _decided_by_people(turn: Turn, found: Findings) -> None:
    decided = [c for c in turn.undone if any(c.told(how, "by") for how in BY_PEOPLE)]
    if decided:
        found.examined("undos decided by people", len(decided))
        listed = ", ".join(sorted({c.step_key for c in decided}))
        found.note(f"people have decided that nothing more is to be undone of {listed}")


# -- complete ------------------------------------------------------------------------------


@dataclass
class Undoable:
    """What is known to have a compensation in one version of a saga.

    Attributes:
        steps: By the error branch that was taken; None for none.
        fan_outs: Those that were undone though all their children had been joined.
    """

    steps: dict[str | None, set[str]] = field(default_factory=lambda: defaultdict(set))
    fan_outs: set[str] = field(default_factory=set)

    def owed(self, turn: Turn) -> Iterator[CheckpointFact]:
        """What a turn has to undo of its own, whatever it did."""
        # Without a branch, what any branch declares is undone.
        every: set[str] = set().union(*self.steps.values())
        steps = every if turn.branch is None else self.steps[turn.branch]
        for entry in turn.before:
            match entry.kind:
                case _ if entry.inherited:
                    pass
                case "step" if entry.step in steps:
                    yield entry
                # Children that were not joined are undone, whatever they have done.
                case "fan-out" if entry.step in self.fan_outs or not _joined(turn, entry):
                    if entry.told("children"):
                        yield entry


def _joined(turn: Turn, fan_out: CheckpointFact) -> bool:
    return any(c.kind == "join" and c.of == fan_out.of for c in turn.before)


def _undoable(turns: Iterable[Turn]) -> Mapping[tuple[str, str], Undoable]:
    undoable: dict[tuple[str, str], Undoable] = defaultdict(Undoable)
    for turn in turns:
        known = undoable[turn.execution.saga, turn.execution.version]
        done = _done(turn)
        for undo in turn.undone:
            original = done.get(undo.of)
            if original is None or original.kind == "step":
                known.steps[turn.branch].add(undo.step)
            elif _joined(turn, original):
                known.fan_outs.add(undo.step)
    return undoable


def _complete(
    turns: Sequence[Turn],
    turn: Turn,
    undoable: Mapping[tuple[str, str], Undoable],
    found: Findings,
) -> None:
    execution = turn.execution
    undone = {u.of for t in turns if t.entered.seq <= turn.entered.seq for u in t.undone}
    owed = {c.of for c in undoable[execution.saga, execution.version].owed(turn)}
    announced = {c.of for c in turn.after if c.kind == "undo-fan-out"}
    for step, visit in sorted((owed | announced) - undone):
        found.violated(
            "compensation.not-undone",
            execution.execution_id,
            f"{step!r} was completed, can be undone, and is not undone",
            step=step,
            visit=visit,
        )


# -- below ---------------------------------------------------------------------------------


def _fenced_out(facts: Facts, turn: Turn, found: Findings) -> None:
    """Its own epoch and every descendant's were raised before anything was undone."""
    me = turn.execution.execution_id
    mine = next(
        (e for e in _raised(facts, turn.execution, me) if _is_of(e, turn.entered)),
        None,
    )
    if mine is None:
        _not_fenced(turn.execution, turn, found)
        return
    for descendant in _descendants(facts, turn):
        if not any(e.event_id > mine.event_id for e in _raised(facts, descendant, me)):
            _not_fenced(descendant, turn, found)


def _raised(facts: Facts, execution: ExecutionFact, by: object) -> Iterator[EventFact]:
    for event in facts.events.get(execution.execution_id, ()):
        if event.name == RAISED and event.details.get("by") == str(by):
            yield event


def _is_of(event: EventFact, entered: CheckpointFact) -> bool:
    return event.epoch == entered.epoch + 1 and event.details.get("head_seq") == entered.seq


def _descendants(facts: Facts, turn: Turn) -> Iterator[ExecutionFact]:
    """Those that there were when it turned back."""
    for entry in turn.before:
        if entry.kind == "fan-out" and not entry.inherited:
            for child in facts.fanned_out(entry.execution_id, *entry.of):
                yield child
                yield from facts.descendants(child.execution_id)


def _not_fenced(execution: ExecutionFact, turn: Turn, found: Findings) -> None:
    found.violated(
        "compensation.not-fenced",
        execution.execution_id,
        "its epoch was not raised before the undoing began",
        compensating=turn.execution.execution_id,
        seq=turn.entered.seq,
    )


def _children(facts: Facts, turns: Sequence[Turn], found: Findings) -> None:
    me = turns[0].execution.execution_id
    undone = {undo.of for turn in turns for undo in turn.undone}
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
