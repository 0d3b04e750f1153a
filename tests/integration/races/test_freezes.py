"""Workers that freeze around a call, lose their work to another, and wake up."""

from __future__ import annotations

import time
from uuid import UUID

import pytest

from fencepost.effects import EffectStatus
from tests.acceptance.races import shop, stories
from tests.acceptance.races.bank import await_booked
from tests.integration.races.bench import MODES, PROTECTED, Bench
from tests.support.inline import A_LONG_TIME


@pytest.mark.parametrize("point", ["effect.before-intent", "effect.after-intent", "shop.sending"])
@pytest.mark.parametrize("mode", ["dedupes", "fences"])
def test_frozen_before_the_call(bench: Bench, order: str, mode: str, point: str) -> None:
    """The worst zombie: its own clock stood still, so that it can't know that it is late."""
    bank = bench.charged(mode, order)
    execution_id = bench.start(shop.refunds[mode], bench.money(order))
    bench.freeze(execution_id, point)
    (transfer,) = [t for t in bank.audit(order)["transfers"] if t["kind"] == "refund"]
    assert bench.result(execution_id) == transfer["id"]
    assert bench.row(execution_id).epoch == 2
    assert bench.refused_writes(execution_id) or mode == "fences"
    if mode == "fences":
        assert transfer["epoch"] == 2
        late = [] if point == "effect.before-intent" else ["stale-token"]
        assert bank.refusals(order) == late


@pytest.mark.parametrize("mode", MODES)
def test_frozen_before_the_call_and_aware_of_it(bench: Bench, order: str, mode: str) -> None:
    """Right before it calls, a worker looks at its own clock."""
    bank = bench.charged(mode, order)
    execution_id = bench.start(shop.refunds[mode], bench.money(order))
    bench.freeze(execution_id, "effect.after-intent", aware=True)
    if mode == "blind":
        bench.assert_parked(execution_id, "effect.in-doubt")
        bench.assert_moved(bank, order)
        return
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])
    assert bench.effect(execution_id).calls == 2  # announced twice, sent once
    assert bank.refusals(order) == []


@pytest.mark.parametrize(("mode", "late"), [("queryable", 2), ("blind", 1)])
def test_where_our_job_ends_a_freeze_behind_the_last_look(
    bench: Bench, order: str, mode: str, late: int
) -> None:
    """A provider that takes any request at any time can't be protected from one that comes late.

    This is the gap that the page tells of: if it closes, the page has to say so.
    """
    bank = bench.charged(mode, order)
    execution_id = bench.start(shop.refunds[mode], bench.money(order))
    bench.freeze(execution_id, "shop.sending")
    if mode == "blind":
        bench.assert_parked(execution_id, "effect.in-doubt")
    else:
        bench.result(execution_id)
    assert len(bank.booked(order, "refund")) == late
    # It isn't silent: the late answer was refused, and is on record.
    assert [event.sink for event in bench.refused_writes(execution_id)] == [mode]


def test_frozen_on_an_open_connection(bench: Bench, order: str) -> None:
    """A sink that neither dedupes nor fences: only the age of the connection is left."""
    bank = bench.charged("queryable", order)
    execution_id = bench.start(stories.refund_connected_first, bench.money(order))
    bench.freeze(execution_id, "payment.before-send")
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])


def test_frozen_while_the_request_is_prepared(
    bench: Bench, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline was fixed before the freeze, and is looked at before anything is sent."""
    bank = bench.charged("queryable", order)
    execution_id = bench.start(stories.refund_connected_first, bench.money(order))

    def taken_over() -> None:
        bench.expire_leases()
        bench.dispatch(bench.row(execution_id))
        bench.patiently(execution_id)
        monkeypatch.setattr(stories, "clock", lambda: time.monotonic() + A_LONG_TIME)

    bench.queue.clear()
    with bench.meanwhile("shop.preparing", taken_over):
        bench.deliver(execution_id)
    bench.result(execution_id)
    bench.assert_moved(bank, order, refunds=[1_000])


@pytest.mark.parametrize("mode", PROTECTED)
def test_lost_during_the_call(bench: Bench, order: str, mode: str) -> None:
    """The request is on its way for longer than its caller lives."""
    bank = bench.charged(mode, order)
    bank.arm(order, "delay", seconds=stories.LATE.total_seconds())
    execution_id = bench.start(shop.refunds[mode], bench.money(order, patience=0.1))
    with bench.killed_at("effect.before-conclusion"):
        bench.deliver(execution_id)
    assert bank.booked(order, "refund") == []
    bench.dispatch(bench.row(execution_id))
    bench.patiently(execution_id)
    bench.result(execution_id)
    await_booked(bank, order, "refund", 1)
    bench.assert_moved(bank, order, refunds=[1_000])


@pytest.mark.parametrize("point", ["shop.landed", "effect.applied", "effect.before-conclusion"])
@pytest.mark.parametrize("mode", MODES)
def test_frozen_after_the_call(bench: Bench, order: str, mode: str, point: str) -> None:
    bank = bench.charged(mode, order)
    execution_id = bench.start(shop.refunds[mode], bench.money(order))
    bench.freeze(execution_id, point)
    bench.assert_moved(bank, order, refunds=[1_000])
    # The zombie's confirmation was refused, and is on record.
    (refused,) = bench.refused_writes(execution_id)
    assert (refused.epoch, refused.sink, bool(refused.payload_digest)) == (1, mode, True)
    if mode == "blind":
        bench.assert_parked(execution_id, "effect.in-doubt")
    else:
        bench.result(execution_id)


@pytest.mark.parametrize("point", ["effect.before-probe", "shop.probed", "effect.after-probe"])
def test_taken_over_during_a_probe(bench: Bench, order: str, point: str) -> None:
    """The zombie knows 'not landed', which was true when it asked."""
    bank = bench.charged("queryable", order)
    execution_id = bench.start(shop.refunds["queryable"], bench.money(order))
    with bench.killed_at("shop.sending"):
        bench.deliver(execution_id)
    bench.let_pass(execution_id, shop.IN_FLIGHT)
    bench.freeze(execution_id, point)
    bench.result(execution_id)
    assert bench.row(execution_id).epoch == 3
    bench.assert_moved(bank, order, refunds=[1_000])


def test_a_probe_while_the_call_is_in_flight(bench: Bench, order: str) -> None:
    bank = bench.charged("queryable", order)
    bank.arm(order, "delay", seconds=stories.LATE.total_seconds())
    execution_id = bench.start(shop.refunds["queryable"], bench.money(order, patience=0.1))
    bench.deliver(execution_id)
    probes = count_probes(bench, execution_id)
    assert probes == 1
    record = bench.effect(execution_id)
    assert (record.status, record.calls) == (EffectStatus.IN_DOUBT, 1)
    assert bank.booked(order, "refund") == []
    bench.patiently(execution_id)
    bench.result(execution_id)
    assert bench.effect(execution_id).calls == 1
    bench.assert_moved(bank, order, refunds=[1_000])


def count_probes(bench: Bench, execution_id: UUID) -> int:
    """Deliver once more at once, and count what is asked."""
    seen: list[int] = []
    with bench.meanwhile("shop.probing", lambda: seen.append(1)):
        bench.one_delivery(execution_id)
    return len(seen)


def test_a_probe_that_fails_again_and_again(bench: Bench, order: str) -> None:
    bank = bench.charged("queryable", order)
    bank.arm(order, "lose-answer")
    execution_id = bench.run(stories.asking_in_vain, bench.money(order))
    bench.assert_parked(execution_id, "effect.in-doubt")
    assert bench.row(execution_id).attempt >= shop.QUICK.attempts - 1
    assert "Connection refused" in (bench.row(execution_id).parked_reason or "")
    assert bench.effect(execution_id).calls == 1
    bench.assert_moved(bank, order, refunds=[1_000])


def test_a_probe_that_cannot_tell(bench: Bench, order: str) -> None:
    bank = bench.charged("queryable", order)
    bank.arm(order, "lose-answer")
    execution_id = bench.run(stories.asking_too_early, bench.money(order))
    bench.assert_parked(execution_id, "effect.in-doubt")
    assert "booked at night" in (bench.row(execution_id).parked_reason or "")
    bench.assert_moved(bank, order, refunds=[1_000])
    bench.resolve(execution_id, landed=True, result="re_seen", why="it was booked at night")
    bench.drain()
    assert bench.result(execution_id) == "re_seen"
