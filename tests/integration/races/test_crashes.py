"""Workers that die around a call, and databases and clocks that fail them there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from typing import Self

import pytest

from fencepost import Status
from fencepost.effects import EffectStatus
from tests.acceptance.races import shop, stories
from tests.integration.races.bench import (
    MODES,
    Bench,
    cut_next_write,
    lose_next_commit,
)

BEFORE = ["effect.before-intent", "effect.after-intent", "shop.sending"]
AFTER = ["shop.landed", "effect.applied", "effect.before-conclusion"]


@pytest.mark.parametrize("point", BEFORE)
@pytest.mark.parametrize("mode", MODES)
def test_killed_before_the_call(bench: Bench, order: str, mode: str, point: str) -> None:
    bank = bench.charged(mode, order)
    execution_id = bench.start(shop.refunds[mode], bench.money(order))
    with bench.killed_at(point):
        bench.deliver(execution_id)
    assert bank.booked(order, "refund") == []
    bench.dispatch(bench.row(execution_id))
    bench.patiently(execution_id)
    if mode == "blind" and point != "effect.before-intent":
        bench.assert_parked(execution_id, "effect.in-doubt")
        bench.assert_moved(bank, order)
        bench.resolve(execution_id, landed=False, why="not on the statement")
        bench.drain()
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])


@pytest.mark.parametrize("point", AFTER)
@pytest.mark.parametrize("mode", MODES)
def test_killed_after_the_call(bench: Bench, order: str, mode: str, point: str) -> None:
    bank = bench.charged(mode, order)
    execution_id = bench.start(shop.refunds[mode], bench.money(order))
    with bench.killed_at(point):
        bench.deliver(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    if mode == "blind":
        bench.assert_parked(execution_id, "effect.in-doubt")
        bench.resolve(execution_id, landed=True, result="re_seen", why="on the statement")
        bench.drain()
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])


@pytest.mark.parametrize("point", ["effect.after-conclusion", "effect.confirmed", "step.after"])
@pytest.mark.parametrize("mode", MODES)
def test_killed_after_it_was_recorded(bench: Bench, order: str, mode: str, point: str) -> None:
    bank = bench.charged(mode, order)
    execution_id = bench.start(shop.refunds[mode], bench.money(order))
    with bench.killed_at(point):
        bench.deliver(execution_id)
    assert bench.effect(execution_id).status is EffectStatus.CONFIRMED
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.result(execution_id)
    assert bench.effect(execution_id).calls == 1
    bench.assert_moved(bank, order, refunds=[1_000])


@pytest.mark.parametrize("point", ["commit.after", "step.before", "effect.after-intent"])
def test_killed_between_two_partial_refunds(bench: Bench, order: str, point: str) -> None:
    bank = bench.charged("dedupes", order)
    execution_id = bench.start(stories.in_two_parts, bench.money(order, 400))
    place = {
        "commit.after": {"step": "first_part"},
        "step.before": {"step": "second_part"},
        "effect.after-intent": {"key": f"{execution_id}:second_part:1:refund_deduped:1"},
    }
    with bench.killed_at(point, **place[point]):
        bench.deliver(execution_id)
    bench.assert_moved(bank, order, refunds=[400])
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[400, 400])


@pytest.mark.parametrize("mode", MODES)
def test_the_answer_of_the_confirmation_is_lost(bench: Bench, order: str, mode: str) -> None:
    """It was committed, and nobody was told."""
    bank = bench.charged(mode, order)
    execution_id = bench.start(shop.refunds[mode], bench.money(order))
    with bench.meanwhile("effect.before-conclusion", lambda: lose_next_commit(bench.database)):
        bench.deliver(execution_id)
    assert bench.effect(execution_id).status is EffectStatus.CONFIRMED
    assert bench.status(execution_id) is Status.ACTIVE
    bench.expire_leases()
    bench.drain()
    bench.result(execution_id)
    assert bench.effect(execution_id).calls == 1
    bench.assert_moved(bank, order, refunds=[1_000])


@pytest.mark.parametrize("mode", MODES)
def test_the_connection_is_cut_before_the_confirmation(bench: Bench, order: str, mode: str) -> None:
    bank = bench.charged(mode, order)
    execution_id = bench.start(shop.refunds[mode], bench.money(order))
    with bench.meanwhile("effect.before-conclusion", lambda: cut_next_write(bench.database)):
        bench.deliver(execution_id)
    assert bench.effect(execution_id).status is EffectStatus.INTENT
    bench.expire_leases()
    bench.drain()
    if mode == "blind":
        bench.assert_parked(execution_id, "effect.in-doubt")
    else:
        bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])


def test_code_that_fails_behind_the_effect(bench: Bench, order: str) -> None:
    bank = bench.banks["dedupes"]
    execution_id = bench.run(stories.stumbling, bench.money(order))
    bench.assert_parked(execution_id, "effect.landed-in-failed-step")
    assert bench.effect(execution_id).status is EffectStatus.CONFIRMED
    bench.assert_moved(bank, order)


@pytest.mark.parametrize("shift", [timedelta(days=-2), timedelta(days=2)], ids=["back", "ahead"])
def test_the_workers_clock_is_set(
    bench: Bench, order: str, shift: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key's age is counted by the database: a wrong clock neither renews nor ages it."""
    bank = bench.charged("dedupes", order)
    execution_id = bench.start(shop.refunds["dedupes"], bench.money(order))
    with bench.killed_at("effect.applied"):
        bench.deliver(execution_id)
    bench.dispatch(bench.row(execution_id))
    with wrong_clock(monkeypatch, shift):
        bench.drain()
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])


def test_a_clock_set_back_doesnt_renew_an_expired_key(
    bench: Bench, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = bench.charged("dedupes", order)
    execution_id = bench.start(shop.refunds["dedupes"], bench.money(order))
    with bench.killed_at("effect.applied"):
        bench.deliver(execution_id)
    bank_forgets = timedelta(days=2)
    bench.let_pass(execution_id, bank_forgets)
    bench.banks.forget_keys(order)
    bench.dispatch(bench.row(execution_id))
    with wrong_clock(monkeypatch, -bank_forgets):
        bench.drain()
    bench.assert_parked(execution_id, "effect.in-doubt")
    bench.assert_moved(bank, order, refunds=[1_000])


@contextmanager
def wrong_clock(monkeypatch: pytest.MonkeyPatch, shift: timedelta) -> Iterator[None]:
    """This process's wall clock is off, wherever Fencepost might read it."""
    import time

    right = time.time

    class Anything(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class Wrong(datetime, metaclass=Anything):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + shift

    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: right() + shift.total_seconds())
        for name, module in list(sys.modules.items()):
            if name.startswith("fencepost") and getattr(module, "datetime", None) is datetime:
                patched.setattr(module, "datetime", Wrong)
        yield
