"""The checker finds nothing in a run that was well, and each way of breaking one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.chaos.checker import EFFECTS, EFFECTS_OF_ITEM, UNDOES, Finding, judge
from tests.chaos.facts import Execution, Facts, Recorded, Row, Wanted

SINKS = {
    "charge": "bank-keyed",
    "give-back": "bank-keyed",
    "upload": "bank-keyed",
    "remove": "bank-keyed",
    "announce": "bank-keyed",
    "publish": "bank-fenced",
    "note": "bank-fenced",
    "repay": "bank-queryable",
    "mail": "bank-blind",
    "deliver": "warehouse",
}
DOUBT = "effect 'mail' (x) at bank-blind: it was announced, and not confirmed"


class Story:
    """Facts of a run in which all went well, one execution after the other."""

    def __init__(self) -> None:
        self.facts = Facts({}, {}, [], [], {})
        self._number = 0

    def runs(
        self, kind: str, reference: str, status: str, *, doomed: str = "", items: int = 0
    ) -> None:
        execution_id = f"id-of-{reference}"
        facts = self.facts
        execution = Execution(execution_id, kind, status, 1, execution_id, None, reference, None)
        children = {
            f"{execution_id}.{index}": Execution(
                f"{execution_id}.{index}",
                "module",
                status,
                1,
                execution_id,
                execution_id,
                None,
                None,
            )
            for index in range(items)
        }
        wanted = Wanted(kind, reference, doomed, items, execution_id)
        self.facts = replace(
            facts,
            wanted={**facts.wanted, reference: wanted},
            executions={**facts.executions, execution_id: execution, **children},
        )
        places = [(reference, what) for what in EFFECTS[kind]]
        places += [
            (f"{reference}.{index}", what)
            for index in range(items)
            for what in EFFECTS_OF_ITEM.get(kind, ())
        ]
        for place, what in places:
            if status == "succeeded":
                self._lands(execution_id, place, what)
            elif what in UNDOES:
                self._lands(execution_id, place, what)
                self._lands(execution_id, place, UNDOES[what])

    def _lands(self, execution_id: str, place: str, what: str) -> None:
        self._number += 1
        sink, key = SINKS.get(what, "ledger"), f"{execution_id}:{place}:{what}"
        row = Row(sink, f"{place}/{what}", key, self._number, 1)
        facts = replace(self.facts, rows=[*self.facts.rows, row])
        if sink == "ledger":
            facts = replace(facts, committed={**facts.committed, key: [1]})
        else:
            record = Recorded(sink, key, what, "confirmed", execution_id, self._number)
            facts = replace(facts, effects=[*facts.effects, record])
        self.facts = facts


def well() -> Facts:
    story = Story()
    story.runs("order", "order-1", "succeeded")
    story.runs("order", "order-2", "compensated", doomed="ship")
    story.runs("refund", "refund-3", "succeeded")
    story.runs("release", "release-4", "succeeded", items=2)
    story.runs("release", "release-5", "compensated", doomed="gate", items=2)
    return story.facts


def row(facts: Facts, reference: str) -> Row:
    (found,) = [row for row in facts.rows if row.reference == reference]
    return found


def without_row(facts: Facts, reference: str) -> Facts:
    return replace(facts, rows=[row for row in facts.rows if row.reference != reference])


def with_row(facts: Facts, extra: Row) -> Facts:
    return replace(facts, rows=[*facts.rows, extra])


def changed(facts: Facts, reference: str, **values: object) -> Facts:
    execution = facts.executions[f"id-of-{reference}"]
    values_of = {execution.execution_id: replace(execution, **values)}  # type: ignore[arg-type] # by name
    return replace(facts, executions={**facts.executions, **values_of})


def recorded(facts: Facts, effect: str, reference: str, **values: object) -> Facts:
    return replace(
        facts,
        effects=[
            replace(record, **values)  # type: ignore[arg-type] # by name
            if record.effect == effect and record.execution_id == f"id-of-{reference}"
            else record
            for record in facts.effects
        ],
    )


@dataclass(frozen=True)
class Broken:
    """A way of breaking a run.

    Attributes:
        name: Of the case.
        breaks: Given facts that are well, returns others.
        code: The rule that must be reported.
        says: What the message must name.
    """

    name: str
    breaks: Callable[[Facts], Facts]
    code: str
    says: str


def _lose_execution(facts: Facts) -> Facts:
    left = {k: v for k, v in facts.executions.items() if k != "id-of-refund-3"}
    return replace(facts, executions=left)


def _forget_want(facts: Facts) -> Facts:
    return replace(facts, wanted={k: v for k, v in facts.wanted.items() if k != "order-1"})


def _want(facts: Facts, reference: str, **values: object) -> Facts:
    wanted = replace(facts.wanted[reference], **values)  # type: ignore[arg-type] # by name
    return replace(facts, wanted={**facts.wanted, reference: wanted})


def _park_child(facts: Facts, reason: str) -> Facts:
    child = facts.executions["id-of-release-4.1"]
    parked = {child.execution_id: replace(child, status="parked", parked_reason=reason)}
    return changed(
        replace(facts, executions={**facts.executions, **parked}), "release-4", status="waiting"
    )


BROKEN = (
    Broken(
        "an order is charged twice",
        lambda f: with_row(f, replace(row(f, "order-1/charge"), number=99)),
        "twice",
        "order-1/charge is 2 times in bank-keyed",
    ),
    Broken(
        "a booking is there twice",
        lambda f: with_row(f, replace(row(f, "order-1/reserve"), number=99, epoch=2)),
        "twice",
        "order-1/reserve is 2 times in ledger",
    ),
    Broken(
        "a zombie's booking is there, and not the owner's",
        lambda f: with_row(
            without_row(f, "order-1/reserve"), replace(row(f, "order-1/reserve"), epoch=2)
        ),
        "booking",
        "order-1/reserve was booked with epoch 2",
    ),
    Broken(
        "a booking without a checkpoint",
        lambda f: replace(f, committed={}),
        "booking",
        "order-1/reserve",
    ),
    Broken("an execution is lost", _lose_execution, "lost", "refund-3"),
    Broken("nobody has started it", _forget_want, "stranger", "nobody has started order order-1"),
    Broken(
        "the client doesn't know",
        lambda f: _want(f, "order-1", execution_id=None),
        "unknown",
        "order-1",
    ),
    Broken(
        "it has another identity",
        lambda f: _want(f, "order-1", execution_id="another"),
        "identity",
        "started as another",
    ),
    Broken(
        "it never ends", lambda f: changed(f, "order-1", status="active"), "open", "order order-1"
    ),
    Broken(
        "it waits for nobody",
        lambda f: changed(f, "release-4", status="waiting"),
        "open",
        "release release-4",
    ),
    Broken(
        "it is parked without a reason",
        lambda f: changed(f, "order-1", status="parked"),
        "parked",
        "none",
    ),
    Broken(
        "it is parked for a reason that is a bug",
        lambda f: changed(f, "order-1", status="parked", parked_reason="refused 11 times: x"),
        "parked",
        "refused 11 times",
    ),
    Broken(
        "a child is parked for a reason that is a bug",
        lambda f: _park_child(f, "no idea"),
        "parked",
        "no idea",
    ),
    Broken(
        "an effect is missing",
        lambda f: without_row(f, "order-1/deliver"),
        "missing",
        "order-1/deliver",
    ),
    Broken(
        "a child's effect is missing",
        lambda f: without_row(f, "release-4.1/register"),
        "missing",
        "release-4.1/register",
    ),
    Broken(
        "an effect still stands",
        lambda f: without_row(f, "order-2/give-back"),
        "standing",
        "order-2/charge still stands",
    ),
    Broken(
        "an effect past the last way back stands",
        lambda f: with_row(f, Row("warehouse", "order-2/deliver", "k", 99, 1)),
        "standing",
        "order-2/deliver",
    ),
    Broken(
        "what never was is undone",
        lambda f: without_row(f, "order-2/charge"),
        "undone",
        "order-2/give-back is there",
    ),
    Broken(
        "what has succeeded is undone",
        lambda f: with_row(f, Row("ledger", "order-1/unreserve", "k", 99, 1)),
        "undone",
        "order-1/unreserve",
    ),
    Broken(
        "a fault has made it fail",
        lambda f: _want(f, "order-2", doomed=""),
        "outcome",
        "order-2 is compensated",
    ),
    Broken(
        "a failure was overlooked",
        lambda f: _want(f, "order-1", doomed="ship"),
        "outcome",
        "order-1 has succeeded",
    ),
    Broken(
        "nobody wanted it",
        lambda f: with_row(f, Row("bank-keyed", "order-77/charge", "k", 99)),
        "stranger",
        "order-77/charge",
    ),
    Broken(
        "it is on record, and the sink hasn't got it",
        lambda f: without_row(f, "refund-3/repay"),
        "record",
        "bank-queryable hasn't got it",
    ),
    Broken(
        "the sink has it, and it is on no record",
        lambda f: replace(f, effects=[e for e in f.effects if e.effect != "repay"]),
        "record",
        "refund-3/repay",
    ),
    Broken(
        "another answer is on record",
        lambda f: recorded(f, "repay", "refund-3", number=1234),
        "record",
        "number 1234",
    ),
    Broken(
        "it counts as refused, and has landed",
        lambda f: recorded(f, "repay", "refund-3", status="refused"),
        "record",
        "is refused",
    ),
    Broken(
        "it is in doubt, and nobody is asked",
        lambda f: recorded(f, "repay", "refund-3", status="in-doubt"),
        "record",
        "nobody is asked",
    ),
    Broken(
        "the verifier has found something",
        lambda f: replace(f, violations=["[chain.gap] x"]),
        "verifier",
        "chain.gap",
    ),
)


def test_nothing_is_found_in_a_run_that_was_well() -> None:
    assert judge(well()) == []


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_what_is_broken_is_found(broken: Broken) -> None:
    found = judge(broken.breaks(well()))
    mine = [finding for finding in found if finding.code == broken.code]
    assert any(broken.says in finding.message for finding in mine), found


def test_every_rule_is_broken_above() -> None:
    assert {broken.code for broken in BROKEN} == {
        *("twice", "lost", "unknown", "identity", "stranger", "open", "parked", "outcome"),
        *("missing", "standing", "undone", "record", "booking", "verifier"),
    }


def test_a_person_is_needed_where_nobody_else_can_know() -> None:
    facts = changed(well(), "order-1", status="parked", parked_reason=DOUBT)
    facts = recorded(without_row(facts, "order-1/mail"), "mail", "order-1", status="in-doubt")
    assert judge(facts) == []
    # It may have landed as well; only not twice.
    assert judge(with_row(facts, row(well(), "order-1/mail"))) == []


def test_whose_child_is_parked_may_wait() -> None:
    reason = "taken over 31 times without a new checkpoint (limit 30)"
    assert judge(_park_child(well(), reason)) == []


def test_a_finding_reads_as_a_sentence() -> None:
    assert str(Finding("twice", "x is 2 times in y")) == "[twice] x is 2 times in y"
