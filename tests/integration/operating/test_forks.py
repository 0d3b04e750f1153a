"""Forks: what comes along, what is refused, and what is done again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from fencepost import Status
from fencepost.engine.operations import Operations
from fencepost.errors import ExecutionStateError, PayloadError
from fencepost.records import EventName, Phase
from fencepost.stores.sql import SqlEffectStore
from tests.integration.operating.office import (
    DONE,
    TROUBLE,
    WHO,
    Office,
    Order,
    asked,
    errand,
    final,
    is_sound,
    kinds,
    orders,
    plain,
    rounds,
    whole,
)


@pytest.fixture(autouse=True)
def more_sagas(fleet):
    fleet.engine.registry.add(rounds)


def refused(office: Office, execution_id: UUID, match: str, **options: Any) -> str:
    with pytest.raises(ExecutionStateError, match=match) as problem:
        office.fork(execution_id, **options, **WHO)
    return str(problem.value.fields["next"])


def test_a_fork_of_what_failed_begins_where_it_failed(fleet, office):
    TROUBLE["charge"] = "fail"
    execution_id = fleet.run(plain, Order(number=1))
    # Its effect has landed, so what becomes of it is a person's to say.
    assert fleet.row(execution_id).status is Status.PARKED
    TROUBLE.clear()
    handle = office.fork(execution_id, by="ada", why="try that again")
    assert list(fleet.queue) == [handle.execution_id]
    assert kinds(fleet, handle.execution_id) == ["start:start", "step:look"]
    fleet.drain()
    assert handle.result(timeout=1) == 5
    row = fleet.row(handle.execution_id)
    assert row.forked_from == execution_id
    assert row.root_id == row.lineage_id == row.execution_id
    # The effect is performed again, under the fork's own step key.
    assert DONE == ["look", "paid 1", "paid 1", "charge"]
    (event,) = fleet.events(execution_id, EventName.FORKED)
    assert event.details == {
        "as": str(handle.execution_id),
        "seq": 1,
        "by": "ada",
        "why": "try that again",
    }


def test_a_fork_undoes_only_what_is_its_own(fleet, office):
    TROUBLE["ship"] = "ask"
    execution_id = fleet.run(orders, Order(number=1))
    TROUBLE["ship"] = "fail"
    DONE.clear()
    handle = office.fork(execution_id, **WHO)
    fleet.drain()
    assert fleet.row(handle.execution_id).status is Status.FAILED
    assert DONE == []


def test_what_is_undone_does_not_come_along(fleet, office):
    TROUBLE["ship"] = "fail"
    execution_id = fleet.run(orders, Order(number=1))
    following = refused(office, execution_id, r"undone from entry 1 \('reserve'\) on: say --at 0")
    assert following == f"fencepost fork {execution_id} --at 0 --why '...'"
    TROUBLE.clear()
    handle = office.fork(execution_id, at=0, **WHO)
    fleet.drain()
    assert handle.result(timeout=1) == "shipped for 5, thanks"
    assert is_sound(fleet)


def test_another_input(fleet, office):
    TROUBLE["ship"] = "fail"
    execution_id = fleet.run(orders, Order(number=1))
    TROUBLE.clear()
    handle = office.fork(execution_id, at=0, input=Order(number=2, price=9), **WHO)
    with pytest.raises(PayloadError, match="input of saga 'order'"):
        office.fork(execution_id, at=0, input={"number": "many"}, **WHO)
    fleet.drain()
    assert handle.result(timeout=1) == "shipped for 9, thanks"
    assert fleet.row(handle.execution_id).input == {"number": 2, "price": 9}


def test_of_what_has_succeeded_one_says_where(fleet, office):
    execution_id = fleet.run(orders, Order(number=1))
    assert "--at 3" in refused(office, execution_id, "nothing of it has failed")
    refused(office, execution_id, "nothing would be left to do", at=4)
    refused(office, execution_id, "there is no such entry|no work on the way forward", at=5)
    DONE.clear()
    handle = office.fork(execution_id, at=3, **WHO)
    fleet.drain()
    assert DONE == ["thank"]
    assert handle.result(timeout=1) == "shipped for 5, thanks"
    line = fleet.run(rounds, Order(number=1))
    assert fleet.row(line).status is Status.CONTINUED
    refused(office, line, "nothing of it has failed")


def test_not_in_the_middle_of_a_wait_or_a_fan_out(fleet, office):
    execution_id = fleet.run(asked, Order(number=1))
    office.approve(execution_id, "manager", **WHO)
    fleet.drain()
    assert kinds(fleet, execution_id)[2:4] == ["wait:manager", "woken:manager"]
    following = refused(office, execution_id, "in the middle of the wait 'manager'", at=2)
    assert "--at 1 " in following
    office.fork(execution_id, at=3, **WHO)
    family = fleet.run(whole, Order(number=2))
    assert kinds(fleet, family)[2] == "fan-out:pieces"
    assert "--at 1 " in refused(office, family, "the middle of the fan-out 'pieces'", at=2)
    DONE.clear()
    joined = next(n for n, kind in enumerate(kinds(fleet, family)) if kind == "join:pieces")
    handle = office.fork(family, at=joined, **WHO)
    fleet.drain()
    assert handle.wait(timeout=1).status is Status.SUCCEEDED
    assert "gather" in DONE
    assert "reserve" not in DONE


def test_what_is_under_way_may_undo_what_would_come_along(fleet, office):
    execution_id = fleet.run(asked, Order(number=1))
    refused(office, execution_id, "under way, and may undo")
    office.fork(execution_id, at=0, **WHO)
    TROUBLE.update(ship="fail", release="ask")
    parked = fleet.run(orders, Order(number=1))
    assert fleet.row(parked).status is Status.PARKED
    refused(office, parked, "it undoes what would come along")


def test_a_task_replays_what_comes_along(fleet, office):
    TROUBLE["second"] = "fail"
    execution_id = fleet.run(errand, Order(number=1))
    assert fleet.row(execution_id).status is Status.FAILED
    assert kinds(fleet, execution_id)[1:] == [
        "step:first",
        "step-failed:second",
        "task-failed:return",
    ]
    TROUBLE.clear()
    DONE.clear()
    handle = office.fork(execution_id, at=1, **WHO)
    fleet.drain()
    assert handle.result(timeout=1) == 2
    assert DONE == ["second"]


def test_a_task_that_has_returned_is_not_forked_whole(fleet, office):
    execution_id = fleet.run(errand, Order(number=1))
    handle = office.fork(execution_id, at=2, **WHO)
    refused(office, execution_id, "no work on the way forward", at=3)
    fleet.drain()
    assert handle.result(timeout=1) == 2


def test_a_fork_past_the_pivot_has_no_way_back(fleet, office):
    TROUBLE["ship"] = "ask"
    execution_id = fleet.run(final, Order(number=1))
    unknowing = Operations(fleet.store, SqlEffectStore(fleet.store))
    with pytest.raises(ExecutionStateError, match=r"has passed its pivot.*name your app"):
        unknowing.fork(execution_id, **WHO)
    handle = office.fork(execution_id, **WHO)
    assert fleet.row(handle.execution_id).phase is Phase.PAST_PIVOT
    before = office.fork(execution_id, at=1, **WHO)
    assert fleet.row(before.execution_id).phase is Phase.FORWARD
    TROUBLE.clear()
    fleet.drain()
    assert handle.result(timeout=1) == before.result(timeout=1) == "shipped for 5"


def test_without_the_definition_a_fork_is_made_all_the_same(fleet):
    TROUBLE["ship"] = "ask"
    execution_id = fleet.run(orders, Order(number=1))
    TROUBLE.clear()
    unknowing = Operations(fleet.store, SqlEffectStore(fleet.store))
    fork = unknowing.fork(execution_id, **WHO)
    assert (fork.head_seq, fork.priority, fork.version) == (2, 5, orders.version)
    fleet.drain()
    assert fleet.row(fork.execution_id).result == "shipped for 5, thanks"
    assert is_sound(fleet)
