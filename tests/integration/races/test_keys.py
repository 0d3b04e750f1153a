"""Keys that expire, that stand for something else by now, or that two executions share."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from fencepost import Status
from tests.acceptance.races import shop, stories
from tests.acceptance.races.shop import Money
from tests.acceptance.races.stories import Loose, world
from tests.integration.races.bench import Bench, cut_next_write

LONG_AGO = shop.RETENTION + timedelta(hours=1)


def test_an_expired_key_is_not_sent_again(bench: Bench, order: str) -> None:
    bank = bench.charged("dedupes", order)
    execution_id = bench.start(shop.refunds["dedupes"], bench.money(order))
    with bench.killed_at("effect.applied"):
        bench.deliver(execution_id)
    bench.let_pass(execution_id, LONG_AGO)
    bench.banks.forget_keys(order)
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.assert_parked(execution_id, "effect.in-doubt")
    assert bench.effect(execution_id).calls == 1
    bench.assert_moved(bank, order, refunds=[1_000])


def test_past_its_keys_retention_a_probe_is_asked(bench: Bench, order: str) -> None:
    bank = bench.charged("dedupes", order)
    landed = bench.start(stories.refund_with_statement, bench.money(order, 100))
    with bench.killed_at("effect.applied"):
        bench.deliver(landed)
    missing = bench.start(stories.refund_with_statement, bench.money(order, 200))
    with bench.killed_at("effect.after-intent"):
        bench.deliver(missing)
    bench.banks.forget_keys(order)
    for execution_id in (landed, missing):
        bench.let_pass(execution_id, LONG_AGO)
        bench.dispatch(bench.row(execution_id))
    bench.drain()
    assert [bench.effect(one).calls for one in (landed, missing)] == [1, 2]
    for execution_id in (landed, missing):
        bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[100, 200])


def test_a_key_for_another_amount(bench: Bench, order: str) -> None:
    bank = bench.charged("dedupes", order)
    first = bench.run(stories.refund_from_web, bench.money(order, 500))
    second = bench.run(stories.refund_at_night, bench.money(order, 600))
    bench.result(first)
    assert bench.status(second) is Status.FAILED
    assert bench.code(second) == "effect.key-conflict"
    bench.assert_moved(bank, order, refunds=[500])
    assert bank.refusals(order) == []  # it was not even asked


@pytest.mark.parametrize("point", ["shop.sending", "effect.applied"])
def test_one_order_from_two_executions(bench: Bench, order: str, point: str) -> None:
    bank = bench.charged("dedupes", order)
    web = bench.start(stories.refund_from_web, bench.money(order))
    night = bench.start(stories.refund_at_night, bench.money(order))
    bench.queue.clear()
    with bench.meanwhile(point, lambda: bench.deliver(night)):
        bench.deliver(web)
    # The other one waited, and called nothing.
    assert bench.status(night) is Status.ACTIVE
    bench.patiently(night)
    assert bench.result(night) == bench.result(web)
    (record,) = bench.effects(web) + bench.effects(night)
    assert record.calls == 1
    bench.assert_moved(bank, order, refunds=[1_000])


def test_an_effect_that_was_undone_is_not_there_any_more(bench: Bench, order: str) -> None:
    """A second attempt must not ship for the first one's money, which was given back."""
    bank = bench.banks["dedupes"]
    world.cancelled.add(order)
    first = bench.run(stories.order_again, bench.money(order))
    assert bench.status(first) is Status.COMPENSATED
    bench.assert_moved(bank, order, refunds=[1_000])
    world.cancelled.clear()
    second = bench.run(stories.order_again, bench.money(order))
    assert bench.status(second) is Status.FAILED
    assert bench.code(second) == "effect.key-conflict"
    bench.assert_moved(bank, order, refunds=[1_000])
    # What undid it stands.
    bench.result(bench.run(stories.refund_from_web, bench.money(order)))
    bench.assert_moved(bank, order, refunds=[1_000])


def test_nobody_builds_on_an_effect_that_is_being_undone(bench: Bench, order: str) -> None:
    bank = bench.banks["dedupes"]
    world.cancelled.add(order)
    first = bench.start(stories.order_again, bench.money(order))
    second = bench.start(stories.order_again, bench.money(order))
    bench.queue.clear()
    with bench.meanwhile("shop.sending", lambda: bench.deliver(second), kind="refund"):
        bench.deliver(first)
    assert bench.status(second) is Status.ACTIVE
    world.cancelled.clear()
    bench.patiently(second)
    assert bench.code(second) == "effect.key-conflict"
    bench.assert_moved(bank, order, refunds=[1_000])


def test_a_deploy_changes_the_request(bench: Bench, order: str) -> None:
    bank = bench.charged("dedupes", order)
    execution_id = bench.start(stories.refund_less_fee, bench.money(order))
    with bench.killed_at("effect.applied"):
        bench.deliver(execution_id)
    world.fee_cents = 50
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.assert_parked(execution_id, "effect.landed-in-failed-step")
    assert "with another request" in (bench.row(execution_id).parked_reason or "")
    bench.assert_moved(bank, order, refunds=[1_000])


@pytest.mark.parametrize(
    ("runs", "same"),
    [
        (({"amount": 0.3}, {"amount": 0.1 + 0.2}), False),
        (({"exact": Decimal("10.0")}, {"exact": Decimal("10.00")}), False),
        (({"exact": Decimal("10.00")}, {"exact": Decimal("10.00")}), True),
        (({"amount": 10.0}, {"amount": 10}), True),
    ],
    ids=["float-sum", "decimal-scale", "decimal-same", "int-as-float"],
)
def test_two_forms_of_one_amount(
    bench: Bench, order: str, runs: tuple[dict[str, object], ...], same: bool
) -> None:
    """Another form is another request: it stops, and pays nothing twice."""
    bank = bench.charged("dedupes", order)
    stories.forms[order] = [Loose.model_validate({"order": order, **run}) for run in runs]
    execution_id = bench.start(stories.refund_loose, order)
    with bench.killed_at("effect.applied"):
        bench.deliver(execution_id)
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    if same:
        bench.result(execution_id)
    else:
        bench.assert_parked(execution_id, "effect.landed-in-failed-step")
    assert len(bank.booked(order, "refund")) == 1


def test_whole_cents_have_one_form(bench: Bench, order: str) -> None:
    bank = bench.charged("dedupes", order)
    assert Money(order=order, cents=round((0.1 + 0.2) * 100)) == Money(order=order, cents=30)
    execution_id = bench.start(shop.refunds["dedupes"], bench.money(order, 30))
    with bench.killed_at("effect.applied"):
        bench.deliver(execution_id)
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[30])


# -- code that changes its mind --------------------------------------------------------------


@pytest.mark.parametrize("point", ["shop.sending", "effect.applied"])
def test_a_model_decides_otherwise_the_second_time(bench: Bench, order: str, point: str) -> None:
    bank = bench.charged("dedupes", order)
    world.answers = [700, 900]
    execution_id = bench.start(stories.refund_agent, order)
    with bench.killed_at(point):
        bench.deliver(execution_id)
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.result(execution_id)
    assert world.asked == 1
    bench.assert_moved(bank, order, refunds=[700])


def test_a_model_whose_answer_was_not_recorded_is_asked_again(bench: Bench, order: str) -> None:
    """Nothing had been paid by then."""
    bank = bench.charged("dedupes", order)
    world.answers = [700, 900]
    execution_id = bench.start(stories.refund_agent, order)
    with bench.killed_at("step.after", step="ask_model"):
        bench.deliver(execution_id)
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.result(execution_id)
    assert world.asked == 2
    bench.assert_moved(bank, order, refunds=[900])


def test_a_model_asked_inside_of_the_paying_step(bench: Bench, order: str) -> None:
    """Where its answer has no checkpoint of its own, another one is a conflict."""
    bank = bench.charged("dedupes", order)
    world.answers = [700, 900]
    execution_id = bench.start(stories.refund_agent_in_one_step, order)
    with bench.killed_at("effect.applied"):
        bench.deliver(execution_id)
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.assert_parked(execution_id, "effect.landed-in-failed-step")
    bench.assert_moved(bank, order, refunds=[700])


@pytest.mark.parametrize(
    ("point", "code", "refunds"),
    [
        ("shop.sending", "effect.in-doubt", []),
        ("effect.applied", "effect.in-doubt", [1_000]),
        ("effect.confirmed", "replay.step-mismatch", [1_000]),
    ],
)
def test_the_second_run_does_not_pay_at_all(
    bench: Bench, order: str, point: str, code: str, refunds: list[int]
) -> None:
    """It must not say 'not wanted any more' over a refund that has, or may have, landed."""
    bank = bench.charged("dedupes", order)
    execution_id = bench.start(stories.refund_unless_cancelled, bench.money(order))
    with bench.killed_at(point):
        bench.deliver(execution_id)
    world.cancelled.add(order)
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.assert_parked(execution_id, code)
    bench.assert_moved(bank, order, refunds=refunds)
    # Asked again in a world in which it is wanted, it comes to the same effect.
    world.cancelled.clear()
    bench.dispatch(bench.store.unpark(execution_id, "wanted after all"))
    bench.drain()
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])


def test_the_second_run_fails_before_it_comes_to_pay(bench: Bench, order: str) -> None:
    bank = bench.banks["dedupes"]
    execution_id = bench.start(stories.charge_unless_cancelled, bench.money(order))
    with bench.killed_at("effect.applied"):
        bench.deliver(execution_id)
    world.cancelled.add(order)
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.assert_parked(execution_id, "effect.landed-in-failed-step")
    bench.assert_moved(bank, order)


@pytest.mark.parametrize("saga", [stories.falling_back, stories.falling_back_task])
def test_a_fallback_to_a_second_provider(bench: Bench, order: str, saga: object) -> None:
    """The first one's answer is lost, or can't be recorded: that is no reason to charge twice."""
    first, second = bench.banks["dedupes"], bench.banks["fences"]
    first.arm(order, "lose-answer")
    execution_id = bench.run(saga, bench.money(order))  # type: ignore[arg-type]
    bench.result(execution_id)
    assert (first.booked(order, "charge"), second.booked(order, "charge")) == ([1_000], [])


@pytest.mark.parametrize("saga", [stories.falling_back, stories.falling_back_task])
def test_a_fallback_because_the_ledger_is_away(bench: Bench, order: str, saga: object) -> None:
    first, second = bench.banks["dedupes"], bench.banks["fences"]
    execution_id = bench.start(saga, bench.money(order))  # type: ignore[arg-type]
    with bench.meanwhile("effect.before-conclusion", lambda: cut_next_write(bench.database)):
        bench.deliver(execution_id)
    bench.expire_leases()
    bench.drain()
    bench.result(execution_id)
    assert (first.booked(order, "charge"), second.booked(order, "charge")) == ([1_000], [])
