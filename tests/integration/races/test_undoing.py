"""Charges and refunds that race each other: compensation, and partial refunds."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import sqlalchemy as sa

from fencepost import Status
from fencepost.effects import EffectStatus
from tests.acceptance.races import books, shop, stories
from tests.integration.races.bench import Bench


def net(bench: Bench, mode: str, order: str) -> tuple[list[int], list[int]]:
    bank = bench.banks[mode]
    return bank.booked(order, "charge"), bank.booked(order, "refund")


@pytest.mark.parametrize("point", ["effect.after-intent", "shop.sending"])
@pytest.mark.parametrize("mode", ["dedupes", "fences"])
def test_a_charge_that_lands_after_its_refund(
    bench: Bench, order: str, mode: str, point: str
) -> None:
    """Frozen before it was sent; taken over, charged, failed, refunded; then it wakes up."""
    execution_id = bench.start(stories.purchases[mode], bench.money(order))
    bench.freeze(execution_id, point)
    assert bench.status(execution_id) is Status.COMPENSATED
    assert net(bench, mode, order) == ([1_000], [1_000])
    refused = bench.refused_writes(execution_id)
    stale = bench.banks[mode].refusals(order)
    assert refused or stale == ["stale-token"]


def test_a_charge_in_doubt_is_not_undone_as_if_it_were_nothing(bench: Bench, order: str) -> None:
    """Its successor fails before it comes to the charge."""
    bank = bench.banks["dedupes"]
    execution_id = bench.start(stories.charge_unless_cancelled, bench.money(order))
    with bench.killed_at("shop.sending"):
        bench.deliver(execution_id)
    stories.world.cancelled.add(order)
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.assert_parked(execution_id, "effect.landed-in-failed-step")
    assert bank.booked(order, "charge") == []


@pytest.mark.parametrize("point", ["shop.sending", "shop.landed", "effect.confirmed", "step.after"])
def test_killed_while_giving_back(bench: Bench, order: str, point: str) -> None:
    execution_id = bench.start(stories.purchases["dedupes"], bench.money(order))
    with ExitStack() as stack:
        # Only when the charge is done: the refund comes past the same points.
        arm = lambda: stack.enter_context(bench.killed_at(point))  # noqa: E731
        with bench.meanwhile("commit.after", arm, step="compensation"):
            bench.deliver(execution_id)
    assert len(bench.banks["dedupes"].booked(order, "refund")) == (point != "shop.sending")
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    assert bench.status(execution_id) is Status.COMPENSATED
    assert net(bench, "dedupes", order) == ([1_000], [1_000])


@pytest.mark.parametrize("fault", ["lose-answer", "error-after", "error-before"])
def test_the_refund_itself_is_in_doubt(bench: Bench, order: str, fault: str) -> None:
    execution_id = bench.start(stories.purchases["dedupes"], bench.money(order))
    bank = bench.banks["dedupes"]
    # Only when the charge has landed: the fault is for the refund.
    with bench.meanwhile("commit.after", lambda: bank.arm(order, fault), step="take"):
        bench.drain()
    assert bench.status(execution_id) is Status.COMPENSATED
    assert net(bench, "dedupes", order) == ([1_000], [1_000])


def test_the_refund_is_in_doubt_at_a_blind_sink(bench: Bench, order: str) -> None:
    bank = bench.charged("blind", order)
    bank.arm(order, "lose-answer")
    execution_id = bench.run(stories.purchases["blind"], bench.money(order))
    # Neither skipped nor sent again.
    bench.assert_parked(execution_id, "effect.in-doubt")
    assert net(bench, "blind", order) == ([10_000], [1_000])
    (charge, refund) = bench.effects(execution_id)
    assert (charge.status, refund.status) == (EffectStatus.CONFIRMED, EffectStatus.IN_DOUBT)
    bench.engine.effects.resolve(
        refund.sink, refund.key, landed=True, result="re_seen", by="ada", why="seen"
    )
    bench.dispatch(bench.store.unpark(execution_id, "seen"))
    bench.drain()
    assert bench.status(execution_id) is Status.COMPENSATED
    assert net(bench, "blind", order) == ([10_000], [1_000])


def test_two_partial_refunds_of_more_than_is_left(bench: Bench, order: str) -> None:
    """The provider doesn't add up: the shop's own books do, in the ledger's transaction."""
    bank = bench.charged("blind", order, 100_000)
    with bench.database.begin() as connection:
        connection.execute(sa.insert(books.refundable), {"order_id": order, "cents": 1_000})
    first = bench.start(books.partial_refund, bench.money(order, 600))
    second = bench.start(books.partial_refund, bench.money(order, 600))
    # The second comes when the first has paid, and before it has ended.
    with bench.meanwhile("effect.applied", lambda: bench.deliver(second)):
        bench.deliver(first)
    bench.drain()
    bench.result(first)
    assert bench.status(second) is Status.FAILED
    assert bench.code(second) == "shop.too-much"
    assert bank.booked(order, "refund") == [600]


def test_two_partial_refunds_where_the_provider_adds_up(bench: Bench, order: str) -> None:
    bank = bench.charged("dedupes", order, 1_000)
    first = bench.start(shop.refunds["dedupes"], bench.money(order, 600))
    second = bench.start(shop.refunds["dedupes"], bench.money(order, 600))
    with bench.meanwhile("shop.sending", lambda: bench.deliver(second)):
        bench.deliver(first)
    statuses = sorted(bench.status(one) for one in (first, second))
    assert statuses == [Status.FAILED, Status.SUCCEEDED]
    assert bank.booked(order, "refund") == [600]
