"""Effects that people decide about, and effects of compensations, as the verifier sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from fencepost import EffectCall, EffectKind, Saga, Status, StepContext, effect, step
from fencepost.engine.decisions import decide_effect
from fencepost.verify import Report, Verdict, verify
from tests.integration.verify.journeys import WHO, Office
from tests.support.inline import Inline


class Money(BaseModel):
    cents: int


DEAF: set[int] = set()


@effect(kind=EffectKind.AT_MOST_ONCE, sink="bank")
def move(call: EffectCall, money: Money) -> int:
    if money.cents in DEAF:
        raise TimeoutError("no answer")
    return money.cents


@step(effects=[move])
def pay_back(ctx: StepContext, paid: Money) -> None:
    ctx.perform(move, Money(cents=-paid.cents))


@step(effects=[move], compensate=pay_back)
def pay(ctx: StepContext, money: Money) -> Money:
    ctx.perform(move, money)
    return money


@step
def ship(money: Money) -> int:
    raise ValueError("out of stock")


order = Saga("order", input=Money).then(pay).then(ship)


@pytest.fixture
def fleet(sqlite_url: str) -> Iterator[Inline]:
    DEAF.clear()
    fleet = Inline(sqlite_url, [order])
    yield fleet
    fleet.close()


def report(fleet: Inline) -> Report:
    return verify(fleet.database.url.render_as_string(hide_password=False))


def decide(fleet: Inline, execution_id: Any, **how: Any) -> None:
    (left,) = fleet.engine.effects.in_doubt(10)
    assert left.execution_id == execution_id
    decide_effect(
        fleet.store,
        fleet.engine.effects,
        left.sink,
        left.key,
        by="ada",
        why="asked the bank",
        declared=move,
        **how,
    )
    fleet.drain()


def change(fleet: Inline, statement: str) -> None:
    with fleet.database.begin() as connection:
        assert connection.exec_driver_sql(statement).rowcount == 1


def test_a_compensation_with_effects_of_its_own_is_healthy(fleet):
    execution_id = fleet.run(order, Money(cents=5))
    assert fleet.row(execution_id).status is Status.COMPENSATED
    found = report(fleet)
    assert found.ok, found.violations
    assert found.line(5).verdict is Verdict.OK
    assert found.line(5).examined["effects"] == 2


@pytest.mark.parametrize("cents", [5, -5], ids=["forward", "in the undo"])
@pytest.mark.parametrize("landed", [True, False])
def test_what_is_in_doubt_may_be_so_while_it_is_parked_and_once_decided(fleet, cents, landed):
    DEAF.add(cents)
    execution_id = fleet.run(order, Money(cents=5))
    assert fleet.row(execution_id).status is Status.PARKED
    found = report(fleet)
    assert found.ok, found.violations
    DEAF.clear()
    decide(fleet, execution_id, landed=landed, result=cents if landed else None)
    assert fleet.row(execution_id).status is Status.COMPENSATED
    found = report(fleet)
    assert found.ok, found.violations


@pytest.mark.parametrize("how", ["skip", "resolve"])
def test_what_landed_before_it_was_cancelled_is_decided_about_by_a_person(fleet, how):
    """It comes back to a step that isn't completed, and whose effect has landed."""
    execution_id = fleet.start(order, Money(cents=5))
    office = Office(fleet)
    with fleet.meanwhile("effect.confirmed", lambda: office.cancel(execution_id, **WHO)):
        fleet.drain()
    assert fleet.row(execution_id).status is Status.PARKED
    assert report(fleet).ok
    if how == "skip":
        office.skip(execution_id, **WHO)
    else:
        office.resolve_step(execution_id, Money(cents=5), **WHO)
    fleet.drain()
    undone = how == "resolve"
    assert fleet.row(execution_id).status is (Status.COMPENSATED if undone else Status.FAILED)
    found = report(fleet)
    assert found.ok, found.violations
    left = [note for note in found.line(5).notes if "has decided to leave behind" in note]
    assert len(left) == (not undone)
    change(fleet, "UPDATE fencepost_events SET details = '{}' WHERE name = 'execution.unparked'")
    codes = {violation.code for violation in report(fleet).violations}
    assert codes == {"compensation.not-turned-back" if undone else "effect.left-behind"}


def test_an_undo_is_not_complete_over_an_unknown_outcome(fleet):
    fleet.run(order, Money(cents=5))
    change(fleet, "UPDATE fencepost_effects SET status = 'intent' WHERE key LIKE '%:undo:%'")
    change(fleet, "UPDATE fencepost_executions SET status = 'parked'")
    assert "effect.in-doubt" in [violation.code for violation in report(fleet).violations]


def test_a_decision_that_the_audit_trail_lacks_is_found(fleet):
    DEAF.add(5)
    execution_id = fleet.run(order, Money(cents=5))
    DEAF.clear()
    decide(fleet, execution_id, landed=True, result=5)
    change(fleet, "DELETE FROM fencepost_events WHERE name = 'effect.resolved'")
    (violation,) = report(fleet).violations
    assert (violation.invariant, violation.code) == (5, "effect.decided-off-record")
