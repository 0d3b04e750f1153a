"""What is in flight, and moving it to another version of its saga."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from fencepost import Saga, Signal, Status, step
from fencepost.commands import Definition
from fencepost.engine import repinning
from fencepost.engine.registry import Registry
from fencepost.errors import PayloadError, UnknownSagaError
from fencepost.records import EventName
from tests.integration.operating.office import (
    DONE,
    TROUBLE,
    WHO,
    Office,
    Order,
    Reading,
    asked,
    charge,
    is_sound,
    keep,
    look,
    orders,
    reserve,
    ship,
    thank,
    told,
)
from tests.support.inline import Inline


@step
def wrap(thanked: str) -> str:
    DONE.append("wrap")
    return f"{thanked}, wrapped"


longer = Saga("order", input=Order).then(reserve).then(charge).then(ship).then(thank).then(wrap)
other_start = Saga("order", input=Order).then(look).then(reserve).then(charge).then(ship)
shorter = Saga("order", input=Order).then(reserve).then(charge)


def only(fleet: Inline, *sagas: Definition) -> Office:
    """Have all workers, and the operator's process, know these only."""
    fleet.engine.registry = Registry(sagas)
    return Office(fleet)


def parked(fleet: Inline, number: int = 1) -> UUID:
    TROUBLE["ship"] = "ask"
    execution_id = fleet.run(orders, Order(number=number))
    TROUBLE.clear()
    return execution_id


def test_what_is_in_flight_and_whether_it_is_known(fleet, office):
    parked(fleet)
    fleet.run(asked, Order(number=1))
    fleet.run(orders, Order(number=2))
    fleet.start(orders, Order(number=3))
    live = {one.saga: one for one in office.in_flight()}
    assert live.keys() == {"asked", "order"}
    assert live["order"].counts == {Status.PARKED: 1, Status.ACTIVE: 1}
    assert live["order"].total == 2
    assert live["order"].version == orders.version
    assert live["order"].oldest < live["asked"].oldest
    assert all(one.known for one in live.values())
    assert [one.known for one in only(fleet, asked, longer).in_flight()] == [True, False]


def test_what_fits_goes_on_in_the_new_version(fleet):
    before = parked(fleet)
    begun = fleet.start(orders, Order(number=2))
    fleet.queue.clear()
    office = only(fleet, longer)
    done = office.repin("order", by="ada", why="the new version")
    assert (done.to, set(done.moved), done.left) == (longer.version, {before, begun}, ())
    assert list(fleet.queue) == [begun]
    assert fleet.row(before).status is Status.PARKED
    assert fleet.row(before).epoch == 2
    office.retry(before, **WHO)
    fleet.drain()
    for execution_id in (before, begun):
        assert fleet.row(execution_id).result == "shipped for 5, thanks, wrapped"
    (event,) = fleet.events(before, EventName.REPINNED)
    assert event.details == {
        "from": orders.version,
        "to": longer.version,
        "by": "ada",
        "why": "the new version",
    }
    assert is_sound(fleet)


def test_who_runs_it_is_fenced(fleet):
    execution_id = fleet.start(orders, Order(number=1))
    done = []

    def move():
        done.append(only(fleet, longer).repin("order", **WHO))

    with fleet.meanwhile("step.after", move, step="reserve"):
        fleet.deliver(fleet.queue.popleft())
    fleet.drain()
    assert done[0].moved == (execution_id,)
    assert DONE.count("reserve") == 2
    assert len(fleet.events(execution_id, EventName.LEASE_LOST)) == 1
    assert fleet.row(execution_id).result == "shipped for 5, thanks, wrapped"
    assert is_sound(fleet)


def test_what_does_not_fit_stays_with_the_reason(fleet):
    execution_id = parked(fleet)
    for version, reason in (
        (other_start, "'reserve' is on record, and this version doesn't come to it"),
        (shorter, "nothing would be left to do"),
    ):
        done = only(fleet, version).repin("order", **WHO)
        assert done.moved == ()
        (left,) = done.left
        assert (left.execution_id, left.version) == (execution_id, orders.version)
        assert left.status is Status.PARKED
        assert left.reason == reason
    assert fleet.row(execution_id).version == orders.version
    assert fleet.events(execution_id, EventName.REPINNED) == []


def test_what_undoes_its_work_stays(fleet):
    TROUBLE.update(ship="fail", release="ask")
    fleet.run(orders, Order(number=1))
    assert only(fleet, longer).repin("order", **WHO).left[0].reason == "it undoes its work"


def test_what_a_person_has_decided_is_done_first(fleet, office):
    execution_id = parked(fleet)
    office.resolve_step(execution_id, "by hand", **WHO)
    (left,) = only(fleet, longer).repin("order", **WHO).left
    assert "yet to be done" in left.reason


def test_a_dry_run_only_looks(fleet):
    execution_id = parked(fleet)
    done = only(fleet, longer).repin("order", dry_run=True, **WHO)
    assert (done.moved, done.dry_run) == ((execution_id,), True)
    assert fleet.row(execution_id).version == orders.version


class Weight(BaseModel):
    kilos: float


class Parcel(BaseModel):
    number: int
    price: int
    weight: Weight


@step(name="reserve")
def reserve_parcel(order: Order) -> Parcel:
    return Parcel(number=order.number, price=order.price, weight=Weight(kilos=1))


@step(name="charge")
def charge_parcel(parcel: Parcel) -> int:
    return parcel.price


typed = Saga("order", input=Order).then(reserve_parcel).then(charge_parcel).then(ship).then(thank)


def test_what_is_on_record_has_to_be_of_the_new_types(fleet):
    parked(fleet)
    (left,) = only(fleet, typed).repin("order", **WHO).left
    assert "result of 'reserve' (visit 1) doesn't fit Parcel: weight" in left.reason
    other = Saga("order", input=Parcel).then(charge_parcel)
    fleet.start(orders, Order(number=1))
    reasons = {one.reason for one in only(fleet, other).repin("order", **WHO).left}
    assert any("input doesn't fit Parcel" in reason for reason in reasons)


renamed = Signal("measured", Reading)


def test_what_waits_has_to_wait_for_the_same(fleet):
    fleet.run(told, Order(number=1))
    elsewhere = (
        Saga("told", input=Order)
        .then(look)
        .wait_for(renamed, timeout=None, name="reading")
        .then(keep)
    )
    (left,) = only(fleet, elsewhere).repin("told", **WHO).left
    assert left.reason == "'reading' waits for 'reading', and in this version for 'measured'"


def test_what_waits_goes_on_waiting_in_the_new_version(fleet):
    execution_id = fleet.run(asked, Order(number=1))
    after = (
        Saga("asked", input=Order)
        .then(reserve)
        .approval("manager", timeout=None)
        .then(charge)
        .then(ship)
    )
    office = only(fleet, after)
    assert office.repin("asked", **WHO).moved == (execution_id,)
    assert fleet.row(execution_id).status is Status.WAITING
    assert not fleet.queue
    office.approve(execution_id, "manager", **WHO)
    fleet.drain()
    assert fleet.row(execution_id).result == "shipped for 5"
    assert is_sound(fleet)


def test_one_says_which_version_where_there_are_several(fleet):
    execution_id = parked(fleet)
    office = only(fleet, orders, longer, shorter)
    with pytest.raises(PayloadError, match="several versions"):
        office.repin("order", **WHO)
    with pytest.raises(UnknownSagaError, match="has no version 123"):
        office.repin("order", to="123", **WHO)
    with pytest.raises(UnknownSagaError, match="no saga 'ordre'"):
        office.repin("ordre", **WHO)
    elsewhere = office.repin("order", to=longer.version, from_version="123", **WHO)
    assert (elsewhere.moved, elsewhere.left) == ((), ())
    assert office.repin("order", to=longer.version, **WHO).moved == (execution_id,)
    assert office.repin("order", to=longer.version, **WHO).moved == ()


def test_many_are_read_a_page_at_a_time(fleet, monkeypatch):
    monkeypatch.setattr(repinning, "PAGE", 2)
    started = {fleet.start(orders, Order(number=number)) for number in range(5)}
    seen: list[Any] = []
    done = only(fleet, longer).repin("order", progress=seen.append, **WHO)
    assert set(done.moved) == started
    assert len(seen) == 5


def test_what_has_gone_on_meanwhile_stays(fleet, monkeypatch):
    execution_id = parked(fleet)
    office = only(fleet, orders, longer)
    real = fleet.store.chain

    def chain(asked_for):
        found = real(asked_for)
        fleet.store.unpark(asked_for, "meanwhile")
        fleet.deliver(asked_for)
        return found

    monkeypatch.setattr(fleet.store, "chain", chain)
    (left,) = office.repin("order", to=longer.version, **WHO).left
    assert "it has gone on meanwhile" in left.reason
    monkeypatch.undo()
    assert fleet.row(execution_id).version == orders.version
