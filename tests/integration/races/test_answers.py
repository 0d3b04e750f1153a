"""Answers that are lost, wrong, late, or no."""

from __future__ import annotations

import pytest

from fencepost import Status
from fencepost.effects import EffectStatus
from tests.acceptance.races import shop, stories
from tests.acceptance.races.bank import await_booked
from tests.integration.races.bench import PROTECTED, Bench


@pytest.mark.parametrize("fault", ["lose-answer", "error-after"])
@pytest.mark.parametrize("mode", PROTECTED)
def test_landed_without_a_good_answer(bench: Bench, order: str, mode: str, fault: str) -> None:
    bank = bench.charged(mode, order)
    bank.arm(order, fault)
    execution_id = bench.start(shop.refunds[mode], bench.money(order))
    bench.deliver(execution_id)
    assert bench.effect(execution_id).status is EffectStatus.IN_DOUBT
    assert bench.status(execution_id) is Status.ACTIVE
    bench.drain()
    (transfer,) = [t for t in bank.audit(order)["transfers"] if t["kind"] == "refund"]
    assert bench.result(execution_id) == transfer["id"]
    assert bench.effect(execution_id).status is EffectStatus.CONFIRMED


@pytest.mark.parametrize("fault", ["lose-answer", "error-after", "error-before"])
def test_no_good_answer_from_a_blind_sink(bench: Bench, order: str, fault: str) -> None:
    bank = bench.charged("blind", order)
    bank.arm(order, fault)
    execution_id = bench.run(shop.refunds["blind"], bench.money(order))
    bench.assert_parked(execution_id, "effect.in-doubt")
    truth = [] if fault == "error-before" else [1_000]
    bench.assert_moved(bank, order, refunds=truth)
    assert bench.effect(execution_id).calls == 1

    # A person has looked: the execution goes on with what is true.
    if truth:
        bench.resolve(execution_id, landed=True, result="re_seen", why="on the statement")
    else:
        bench.resolve(execution_id, landed=False, why="not on the statement")
    bench.drain()
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])


@pytest.mark.parametrize("mode", PROTECTED)
def test_an_error_before_anything_happened(bench: Bench, order: str, mode: str) -> None:
    bank = bench.charged(mode, order)
    bank.arm(order, "error-before", times=2)
    execution_id = bench.start(shop.refunds[mode], bench.money(order))
    bench.patiently(execution_id)
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])


@pytest.mark.parametrize("mode", PROTECTED)
def test_a_call_that_lands_after_its_time_out(bench: Bench, order: str, mode: str) -> None:
    bank = bench.charged(mode, order)
    bank.arm(order, "delay", seconds=stories.LATE.total_seconds())
    execution_id = bench.start(shop.refunds[mode], bench.money(order, patience=0.2))
    bench.deliver(execution_id)
    assert bench.effect(execution_id).status is EffectStatus.IN_DOUBT
    assert bank.booked(order, "refund") == []
    bench.one_delivery(execution_id)  # while the first call is still under way
    if mode == "dedupes":
        assert bank.refusals(order) == ["in-progress"]
    if mode == "queryable":
        assert bench.effect(execution_id).calls == 1  # "not landed" isn't believed yet
    await_booked(bank, order, "refund", 1)
    bench.patiently(execution_id)
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])


def test_a_late_call_at_a_blind_sink(bench: Bench, order: str) -> None:
    bank = bench.charged("blind", order)
    bank.arm(order, "delay", seconds=stories.LATE.total_seconds())
    execution_id = bench.run(shop.refunds["blind"], bench.money(order, patience=0.2))
    bench.assert_parked(execution_id, "effect.in-doubt")
    await_booked(bank, order, "refund", 1)
    bench.assert_moved(bank, order, refunds=[1_000])


def test_in_progress_is_no_refusal(bench: Bench, order: str) -> None:
    bank = bench.charged("dedupes", order)
    bank.arm(order, "in-progress", times=2)
    execution_id = bench.start(shop.refunds["dedupes"], bench.money(order))
    bench.deliver(execution_id)
    assert bench.effect(execution_id).status is EffectStatus.IN_DOUBT
    bench.drain()
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])
    assert len({t["key"] for t in bank.audit(order)["transfers"]}) == 2  # none for the charge


def test_refused_and_tried_again_after_a_top_up(bench: Bench, order: str) -> None:
    bank = bench.charged("dedupes", order, 500)
    first = bench.run(shop.refunds["dedupes"], bench.money(order))
    assert bench.status(first) is Status.FAILED
    assert bench.code(first) == "effect.refused"
    assert bench.effect(first).status is EffectStatus.REFUSED
    bank.charge(order, 500)
    # An attempt of its own has a key of its own, and the provider looks again.
    second = bench.run(shop.refunds["dedupes"], bench.money(order))
    bench.result(second)
    bench.assert_moved(bank, order, refunds=[1_000], charges=2)


def test_a_refusal_is_remembered_under_its_key(bench: Bench, order: str) -> None:
    """Where our job ends: a business key stands for one request, and the provider kept its no."""
    bank = bench.charged("dedupes", order, 500)
    first = bench.run(stories.refund_from_web, bench.money(order))
    bank.charge(order, 500)
    second = bench.run(stories.refund_at_night, bench.money(order))
    assert [bench.code(one) for one in (first, second)] == ["effect.refused"] * 2
    (record,) = bench.effects(first) + bench.effects(second)
    assert (record.status, record.calls) == (EffectStatus.REFUSED, 2)
    bench.assert_moved(bank, order, refunds=[], charges=2)
