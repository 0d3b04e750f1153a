"""Races that need whole workers: signals, messages, and a broker that forgets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from sqlalchemy.orm import Session

from fencepost import BusinessKeyConflictError, Handle, Status
from fencepost.records import EventName
from tests.acceptance.races import shop as sagas
from tests.acceptance.races import worker
from tests.acceptance.races.fleet import Shop
from tests.acceptance.races.shop import Money

LEFT = {"dedupes": [1_000], "fences": [1_000], "queryable": [1_000], "blind": [1_000]}


@pytest.mark.parametrize("mode", LEFT)
def test_a_worker_is_killed_after_the_call(shop: Shop, order: str, mode: str) -> None:
    bank = shop.charged(mode, order)
    fault = shop.arm("shop.landed", "kill", order)
    handle = shop.start(sagas.refunds[mode], order)
    fault.victim()
    status = shop.ends(handle)
    assert status is (Status.PARKED if mode == "blind" else Status.SUCCEEDED)
    assert bank.booked(order, "refund") == [1_000]
    assert shop.row(handle).epoch == 2


@pytest.mark.parametrize("mode", ["dedupes", "fences"])
def test_a_worker_freezes_before_it_sends_and_wakes_up(shop: Shop, order: str, mode: str) -> None:
    """Behind every check of its own: only the provider can refuse it."""
    bank = shop.charged(mode, order)
    fault = shop.arm("shop.sending", "freeze", order)
    handle = shop.start(sagas.refunds[mode], order)
    frozen = fault.victim()
    shop.succeeds(handle)
    frozen.thaw()
    ignored = f"[{handle.execution_id}] ignored"
    shop.fleet.wait_for(lambda: ignored in frozen.log(), 20, "the zombie's end")
    assert bank.booked(order, "refund") == [1_000]
    assert bank.refusals(order) == (["stale-token"] if mode == "fences" else [])


def test_a_message_comes_six_times_while_the_call_is_under_way(shop: Shop, order: str) -> None:
    bank = shop.charged("blind", order)
    fault = shop.arm("shop.sending", "pause", order)
    handle = shop.start(sagas.refunds["blind"], order)
    fault.victim()
    for _ in range(5):
        shop.fp.engine.transport.dispatch(shop.row(handle))
    ignored = f"[{handle.execution_id}] ignored"
    shop.fleet.wait_for(lambda: shop.logged(ignored) >= 5, 20, "the copies' end")
    fault.go()
    shop.succeeds(handle)
    assert bank.booked(order, "refund") == [1_000]
    assert shop.row(handle).epoch == 1


def test_a_call_that_takes_longer_than_the_visibility_timeout(shop: Shop, order: str) -> None:
    bank = shop.charged("blind", order)
    bank.arm(order, "delay", seconds=worker.VISIBILITY + 2)
    handle = shop.start(sagas.refunds["blind"], order, patience=20.0)
    ignored = f"[{handle.execution_id}] ignored"
    shop.fleet.wait_for(lambda: shop.logged(ignored) >= 1, 20, "a redelivered copy's end")
    shop.succeeds(handle)
    assert bank.booked(order, "refund") == [1_000]
    assert shop.row(handle).epoch == 1


def test_the_message_of_a_committed_start_is_lost(shop: Shop, order: str) -> None:
    """The process died between its commit and its message: the row is the outbox."""
    bank = shop.charged("dedupes", order)
    execution, _ = shop.fp.engine.create(sagas.refunds["dedupes"], Money(order=order))
    handle: Handle[str] = shop.fp.handle(execution.execution_id, sagas.refunds["dedupes"])
    shop.succeeds(handle)
    assert bank.booked(order, "refund") == [1_000]


def test_redis_forgets_everything_in_mid_call(shop: Shop, order: str) -> None:
    bank = shop.charged("blind", order)
    fault = shop.arm("shop.sending", "pause", order)
    calling = shop.start(sagas.refunds["blind"], order, cents=100)
    fault.victim()
    queued, _ = shop.fp.engine.create(sagas.refunds["blind"], Money(order=order, cents=200))
    shop.redis.flushall()
    restored = f"fencepost:lease:{calling.execution_id}"
    shop.fleet.wait_for(lambda: shop.redis.exists(restored), 10, "the holder to put its lease back")
    fault.go()
    shop.succeeds(calling)
    shop.succeeds(shop.fp.handle(queued.execution_id, sagas.refunds["blind"]))
    assert sorted(bank.booked(order, "refund")) == [100, 200]
    assert shop.row(calling).epoch == 1


def test_ten_clicks_at_once(shop: Shop, order: str) -> None:
    bank = shop.charged("blind", order)

    def click(_: int) -> Handle[str]:
        return shop.start(sagas.refunds["blind"], order, key=f"refund:{order}")

    with ThreadPoolExecutor(10) as clicks:
        handles = list(clicks.map(click, range(10)))
    assert len({handle.execution_id for handle in handles}) == 1
    assert sum(handle.created for handle in handles) == 1
    with pytest.raises(BusinessKeyConflictError):
        shop.start(sagas.refunds["blind"], order, key=f"refund:{order}", cents=999)
    shop.succeeds(handles[0])
    assert len(shop.events(handles[0], EventName.STARTED)) == 1
    assert bank.booked(order, "refund") == [1_000]


def test_a_start_whose_transaction_rolls_back(shop: Shop, order: str) -> None:
    bank = shop.charged("blind", order)
    database = shop.fp.database.execution_options(isolation_level="READ COMMITTED")
    key = str(uuid4())
    with Session(database) as session:
        never = shop.fp.start(
            sagas.refunds["blind"], Money(order=order, cents=1), key=key, session=session
        )
        session.rollback()
    # Nothing of it is left: its key is free, for another input too.
    handle = shop.start(sagas.refunds["blind"], order, key=key)
    assert handle.created
    assert handle.execution_id == never.execution_id
    shop.succeeds(handle)
    assert bank.booked(order, "refund") == [1_000]
