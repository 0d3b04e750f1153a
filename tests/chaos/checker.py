"""Judges a run by what is stored. Pure: it reads nothing and knows nothing of the engine."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.chaos.facts import ENDED, Execution, Facts, Recorded, Row, Wanted

PARKED_FOR_GOOD_REASON = (
    # Nobody but a person can know what became of a mail, which is at-most-once.
    re.compile(r"^effect 'mail' "),
    re.compile(r"^taken over \d+ times without a new checkpoint "),
)

UNDOES = {
    "reserve": "unreserve",
    "charge": "give-back",
    "upload": "remove",
    "register": "unregister",
}
"""What undoes what. All else comes after the last way back."""

EFFECTS = {
    "order": ("reserve", "charge", "deliver", "mail"),
    "refund": ("repay", "enter", "note"),
    "release": ("publish", "announce"),
}
EFFECTS_OF_ITEM = {"release": ("upload", "register")}


@dataclass(frozen=True)
class Finding:
    """Something that must not be.

    Attributes:
        code: Names the rule.
        message: What, where and how often, for a person.
    """

    code: str
    message: str

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


def judge(facts: Facts) -> list[Finding]:
    """All that is wrong; empty if nothing is."""
    return [
        *twice(facts.rows),
        *_started_and_ended(facts),
        *_outcomes(facts),
        *_records(facts),
        *_bookings(facts),
        *(Finding("verifier", violation) for violation in facts.violations),
    ]


def twice(rows: Sequence[Row]) -> Iterator[Finding]:
    """Business effects that have happened more than once."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        found[row.sink, row.reference].append(row)
    for (sink, reference), same in found.items():
        if len(same) > 1:
            each = "; ".join(f"number {row.number}, key {row.key}, {_by(row)}" for row in same)
            yield Finding("twice", f"{reference} is {len(same)} times in {sink}: {each}")


def _by(row: Row) -> str:
    return row.by if row.epoch is None else f"epoch {row.epoch}, {row.by}"


def _roots(facts: Facts) -> dict[str, Execution]:
    """What was started, by its business key."""
    roots = (e for e in facts.executions.values() if e.parent_id is None)
    return {e.business_key or e.execution_id: e for e in roots}


def _started_and_ended(facts: Facts) -> Iterator[Finding]:
    roots = _roots(facts)
    for wanted in facts.wanted.values():
        root = roots.get(wanted.reference)
        if root is None:
            yield Finding("lost", f"{wanted.reference} was started, and there is no execution")
        elif wanted.execution_id is None:
            yield Finding("unknown", f"the client never learned that {wanted.reference} is started")
        elif wanted.execution_id != root.execution_id:
            yield Finding(
                "identity",
                f"{wanted.reference} was started as {wanted.execution_id}, and is"
                f" {root.execution_id}",
            )
    for reference, root in roots.items():
        if reference not in facts.wanted:
            yield Finding("stranger", f"nobody has started {root.saga} {reference}")
    held = _held_by_parked(facts)
    for execution in facts.executions.values():
        yield from _end_of(execution, held)


def _held_by_parked(facts: Facts) -> set[str]:
    """Ancestors of what is parked: they may wait."""
    held: set[str] = set()
    for execution in facts.executions.values():
        parent = execution.parent_id if execution.status == "parked" else None
        while parent is not None:
            held.add(parent)
            parent = facts.executions[parent].parent_id if parent in facts.executions else None
    return held


def _end_of(execution: Execution, held: set[str]) -> Iterator[Finding]:
    named = f"{execution.saga} {execution.business_key or execution.execution_id}"
    if execution.status in ENDED:
        return
    if execution.status == "parked":
        reason = execution.parked_reason or ""
        if not any(allowed.match(reason) for allowed in PARKED_FOR_GOOD_REASON):
            yield Finding("parked", f"{named} is parked for no good reason: {reason or 'none'}")
    elif not (execution.status == "waiting" and execution.execution_id in held):
        yield Finding("open", f"{named} has never ended: it is {execution.status}")


def _outcomes(facts: Facts) -> Iterator[Finding]:
    """Each effect exactly once for what succeeded, and none standing for what was undone."""
    counts = Counter(row.reference for row in facts.rows)
    parked = {e.root_id for e in facts.executions.values() if e.status == "parked"}
    known: set[str] = set()
    roots = _roots(facts)
    for wanted in facts.wanted.values():
        forward = list(_references(wanted))
        known |= {reference for pair in forward for reference in pair if reference}
        root = roots.get(wanted.reference)
        if root is None or root.status not in ENDED or root.execution_id in parked:
            continue
        yield from _fate(wanted, root)
        for does, undoes in forward:
            yield from _stands(root, counts, does, undoes)
    for reference in sorted(counts.keys() - known):
        yield Finding("stranger", f"nobody has wanted {reference}, and a sink has it")


def _references(wanted: Wanted) -> Iterator[tuple[str, str | None]]:
    """What is done for it, and what undoes that."""
    places = [(wanted.reference, what) for what in EFFECTS[wanted.kind]]
    places += [
        (f"{wanted.reference}.{index}", what)
        for index in range(wanted.items)
        for what in EFFECTS_OF_ITEM.get(wanted.kind, ())
    ]
    for place, what in places:
        undo = UNDOES.get(what)
        yield f"{place}/{what}", f"{place}/{undo}" if undo else None


def _fate(wanted: Wanted, root: Execution) -> Iterator[Finding]:
    """No fault may change what comes of an order; only the order itself decides that."""
    succeeded = root.status == "succeeded"
    if succeeded and wanted.doomed:
        yield Finding("outcome", f"{wanted.reference} has succeeded, though {wanted.doomed} failed")
    if not succeeded and not wanted.doomed:
        yield Finding(
            "outcome",
            f"{wanted.reference} is {root.status}, though nothing of it failed: {root.error}",
        )


def _stands(
    root: Execution, counts: Counter[str], does: str, undoes: str | None
) -> Iterator[Finding]:
    done, undone = counts[does], counts[undoes] if undoes else 0
    if root.status == "succeeded":
        if done == 0:
            yield Finding("missing", f"{root.business_key} has succeeded, and {does} isn't there")
        if undone:
            yield Finding("undone", f"{root.business_key} has succeeded, and {undoes} is there")
    elif done > undone:
        yield Finding("standing", f"{root.business_key} is {root.status}, and {does} still stands")
    elif undone > done:
        yield Finding("undone", f"{undoes} is there, and {does} never was")


def _records(facts: Facts) -> Iterator[Finding]:
    """The engine's records of effects are exactly the sinks'."""
    at_sinks: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in facts.rows:
        if row.sink != "ledger":
            at_sinks[row.sink, row.key].append(row)
    recorded = {(effect.sink, effect.key): effect for effect in facts.effects}
    parked = {e.execution_id for e in facts.executions.values() if e.status == "parked"}
    for place, effect in recorded.items():
        problem = _mismatch(effect, at_sinks[place], may_doubt=effect.execution_id in parked)
        if problem:
            yield Finding("record", problem)
    for (sink, key), rows in at_sinks.items():
        if rows and (sink, key) not in recorded:
            yield Finding(
                "record", f"{sink} has {rows[0].reference} ({key}), which is on no record"
            )


def _mismatch(effect: Recorded, rows: Sequence[Row], *, may_doubt: bool) -> str | None:
    """What is wrong between an effect's record and what its sink has under its key."""
    numbers = [row.number for row in rows]
    match effect.status:
        case "confirmed":
            if not rows:
                return f"{effect.key} is on record, and {effect.sink} hasn't got it"
            if effect.number not in numbers:
                return (
                    f"{effect.key} is on record as number {effect.number}, and at {effect.sink}"
                    f" as {numbers}"
                )
        case "refused" | "not-landed":
            if rows:
                return f"{effect.key} is {effect.status}, and {effect.sink} has it"
        case _:
            if not may_doubt:
                return f"{effect.key} is {effect.status}, and nobody is asked about it"
    return None


def _bookings(facts: Facts) -> Iterator[Finding]:
    """What a transactional step has written is there with its checkpoint, and with no other."""
    for row in facts.rows:
        if row.sink == "ledger" and row.epoch not in facts.committed.get(row.key, ()):
            yield Finding(
                "booking",
                f"{row.reference} was booked with epoch {row.epoch}, and the checkpoints of"
                f" {row.key} have {list(facts.committed.get(row.key, ()))}",
            )
