"""The checker: a copy of what a good run leaves is broken in each way, and each is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos import checker
from tests.chaos.facts import Execution, Facts, Recorded, Row, Wanted, wanted
from tests.chaos.history import History

ORDER, REFUND, RELEASE, UNDONE = "order-1", "refund-2", "release-3", "order-4"


def _good() -> Facts:
    """An order, a refund and a release of two modules that succeeded, and an undone order."""
    return Facts(
        wanted={
            ORDER: Wanted("order", ORDER, "", 0, "o"),
            REFUND: Wanted("refund", REFUND, "", 0, "f"),
            RELEASE: Wanted("release", RELEASE, "", 2, "r"),
            UNDONE: Wanted("order", UNDONE, "pack", 0, "u"),
        },
        executions={
            e.execution_id: e
            for e in (
                Execution("o", "order", "succeeded", 2, "o", None, ORDER, None),
                Execution("f", "refund", "succeeded", 1, "f", None, REFUND, None),
                Execution("r", "release", "succeeded", 1, "r", None, RELEASE, None),
                Execution("r0", "module", "succeeded", 1, "r", "r", None, None),
                Execution("r1", "module", "succeeded", 3, "r", "r", None, None),
                Execution("u", "order", "compensated", 2, "u", None, UNDONE, None),
            )
        },
        effects=[_record(row) for row in _rows() if row.sink != "ledger"],
        rows=_rows(),
        committed={row.key: [row.epoch] for row in _rows() if row.epoch and row.sink == "ledger"},
    )


def _rows() -> list[Row]:
    places = [
        ("ledger", f"{ORDER}/reserve", "o"),
        ("bank-keyed", f"{ORDER}/charge", "o"),
        ("warehouse", f"{ORDER}/deliver", "o"),
        ("bank-blind", f"{ORDER}/mail", "o"),
        ("bank-queryable", f"{REFUND}/repay", "f"),
        ("ledger", f"{REFUND}/enter", "f"),
        ("bank-fenced", f"{REFUND}/note", "f"),
        ("bank-keyed", f"{RELEASE}.0/upload", "r0"),
        ("ledger", f"{RELEASE}.0/register", "r0"),
        ("bank-keyed", f"{RELEASE}.1/upload", "r1"),
        ("ledger", f"{RELEASE}.1/register", "r1"),
        ("bank-fenced", f"{RELEASE}/publish", "r"),
        ("bank-keyed", f"{RELEASE}/announce", "r"),
        ("ledger", f"{UNDONE}/reserve", "u"),
        ("ledger", f"{UNDONE}/unreserve", "u"),
        ("bank-keyed", f"{UNDONE}/charge", "u"),
        ("bank-keyed", f"{UNDONE}/give-back", "u"),
    ]
    return [
        Row(sink, reference, f"{execution}:{reference.rpartition('/')[2]}:1", number, 1)
        for number, (sink, reference, execution) in enumerate(places, start=1)
    ]


def _record(row: Row) -> Recorded:
    execution, effect, _ = row.key.split(":")
    return Recorded(row.sink, row.key, effect, "confirmed", execution, row.number)


def _codes(facts: Facts) -> set[str]:
    return {finding.code for finding in checker.judge(facts)}


def _with_execution(facts: Facts, execution_id: str, **changed: Any) -> Facts:
    execution = replace(facts.executions[execution_id], **changed)
    return replace(facts, executions={**facts.executions, execution_id: execution})


def _with_record(facts: Facts, effect: str, **changed: Any) -> Facts:
    """The first record of an effect, changed."""
    place = next(i for i, each in enumerate(facts.effects) if each.effect == effect)
    effects = list(facts.effects)
    effects[place] = replace(effects[place], **changed)
    return replace(facts, effects=effects)


def _without_row(facts: Facts, reference: str) -> Facts:
    return replace(facts, rows=[row for row in facts.rows if row.reference != reference])


def _without_row_and_record(facts: Facts, reference: str) -> Facts:
    keys = {row.key for row in facts.rows if row.reference == reference}
    effects = [effect for effect in facts.effects if effect.key not in keys]
    return replace(_without_row(facts, reference), effects=effects)


def _with_row(facts: Facts, like: str, **changed: Any) -> Facts:
    row = next(row for row in facts.rows if row.reference == like)
    return replace(facts, rows=[*facts.rows, replace(row, number=99, **changed)])


def _with_effect(facts: Facts, like: str, **changed: Any) -> Facts:
    """A further row at a sink, with a record of its own."""
    broken = _with_row(facts, like, **changed)
    return replace(broken, effects=[*broken.effects, _record(broken.rows[-1])])


def test_what_a_good_run_leaves_is_good() -> None:
    assert checker.judge(_good()) == []


BROKEN: dict[str, tuple[Callable[[Facts], Facts], str]] = {
    "paid twice under one key": (lambda f: _with_row(f, f"{ORDER}/charge"), "twice"),
    "paid twice under two keys": (
        lambda f: _with_effect(f, f"{ORDER}/charge", key="o:charge:2"),
        "twice",
    ),
    "booked twice": (lambda f: _with_row(f, f"{REFUND}/enter"), "twice"),
    "no execution for what was started": (
        lambda f: replace(
            f, executions={k: e for k, e in f.executions.items() if e.business_key != REFUND}
        ),
        "lost",
    ),
    "the client was never answered": (
        lambda f: replace(
            f, wanted={**f.wanted, ORDER: replace(f.wanted[ORDER], execution_id=None)}
        ),
        "unknown",
    ),
    "another execution than the client was told": (
        lambda f: replace(
            f, wanted={**f.wanted, ORDER: replace(f.wanted[ORDER], execution_id="x")}
        ),
        "identity",
    ),
    "an execution that nobody has started": (
        lambda f: replace(f, wanted={k: w for k, w in f.wanted.items() if k != ORDER}),
        "stranger",
    ),
    "an effect that nobody wanted": (
        lambda f: _with_effect(f, f"{ORDER}/charge", reference="order-9/charge", key="x:charge:1"),
        "stranger",
    ),
    "never ended": (lambda f: _with_execution(f, "o", status="active"), "open"),
    "waits for nobody that is parked": (
        lambda f: _with_execution(f, "r", status="waiting"),
        "open",
    ),
    "a child that never ended": (lambda f: _with_execution(f, "r1", status="queued"), "open"),
    "parked without a reason": (
        lambda f: _with_execution(f, "o", status="parked", parked_reason=None),
        "parked",
    ),
    "parked for a reason that isn't allowed": (
        lambda f: _with_execution(f, "o", status="parked", parked_reason="no idea"),
        "parked",
    ),
    "failed, though nothing of it was meant to": (
        lambda f: _with_execution(f, "f", status="failed"),
        "outcome",
    ),
    "succeeded, though a step of it failed": (
        lambda f: _with_execution(f, "u", status="succeeded"),
        "outcome",
    ),
    "succeeded without its payment": (
        lambda f: _without_row_and_record(f, f"{ORDER}/charge"),
        "missing",
    ),
    "succeeded without a module's booking": (
        lambda f: _without_row(f, f"{RELEASE}.1/register"),
        "missing",
    ),
    "succeeded, and given back": (
        lambda f: _with_effect(
            f, f"{ORDER}/charge", reference=f"{ORDER}/give-back", key="o:give-back:1"
        ),
        "undone",
    ),
    "compensated, and still charged": (
        lambda f: _without_row_and_record(f, f"{UNDONE}/give-back"),
        "standing",
    ),
    "compensated, and still reserved": (
        lambda f: _without_row(f, f"{UNDONE}/unreserve"),
        "standing",
    ),
    "given back what was never paid": (
        lambda f: _without_row_and_record(f, f"{UNDONE}/charge"),
        "undone",
    ),
    "compensated, and shipped": (
        lambda f: _with_effect(
            f, f"{ORDER}/deliver", reference=f"{UNDONE}/deliver", key="u:deliver:1"
        ),
        "standing",
    ),
    "on record, and not at the sink": (lambda f: _without_row(f, f"{REFUND}/note"), "record"),
    "on record by another number": (lambda f: _with_record(f, "repay", number=77), "record"),
    "at the sink, and on no record": (
        lambda f: replace(f, effects=[e for e in f.effects if e.effect != "note"]),
        "record",
    ),
    "refused on record, and at the sink": (
        lambda f: _with_record(f, "note", status="refused"),
        "record",
    ),
    "in doubt, and nobody is asked": (
        lambda f: _with_record(f, "mail", status="in-doubt"),
        "record",
    ),
    "an intent of something that has ended": (
        lambda f: _with_record(f, "charge", status="intended"),
        "record",
    ),
    "booked without a checkpoint": (
        lambda f: replace(f, committed={k: v for k, v in f.committed.items() if k[:2] != "f:"}),
        "booking",
    ),
    "booked with an older epoch than the checkpoint's": (
        lambda f: replace(f, committed={**f.committed, "f:enter:1": [2]}),
        "booking",
    ),
    "the verifier complains": (lambda f: replace(f, violations=["a fork"]), "verifier"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_it_is_reported(how: str) -> None:
    break_it, code = BROKEN[how]
    assert code in _codes(break_it(_good()))


@pytest.mark.parametrize(
    "reason",
    [
        "effect 'mail' is in doubt",
        "taken over 30 times without a new checkpoint (poison)",
    ],
)
def test_a_person_may_be_asked(reason: str) -> None:
    facts = _with_execution(_good(), "o", status="parked", parked_reason=reason)
    assert checker.judge(facts) == []


def test_who_is_asked_about_it_may_doubt() -> None:
    facts = _with_execution(
        _good(), "o", status="parked", parked_reason="effect 'mail' is in doubt"
    )
    assert checker.judge(_with_record(facts, "mail", status="in-doubt")) == []


def test_a_parent_may_wait_for_a_child_that_is_parked() -> None:
    reason = "taken over 30 times without a new checkpoint (poison)"
    facts = _with_execution(_good(), "r1", status="parked", parked_reason=reason)
    assert checker.judge(_with_execution(facts, "r", status="waiting")) == []


def test_what_is_wanted_comes_from_the_history() -> None:
    history = History()
    history.add("start", "order", target=ORDER, doomed="pack", items=0)
    history.add("start", "release", target=RELEASE, doomed="", items=3)
    history.add("not-started", "order", target=ORDER, answer="no")
    history.add("started", "order", target=ORDER, answer="o", attempt=2)
    assert wanted(history.entries()) == {
        ORDER: Wanted("order", ORDER, "pack", 0, "o"),
        RELEASE: Wanted("release", RELEASE, "", 3, None),
    }
