"""Cancelling, pausing and resuming."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from fencepost import Saga, Status, step
from fencepost.errors import ExecutionNotFoundError, ExecutionStateError, PayloadError
from fencepost.records import EventName, Phase
from tests.integration.operating.office import (
    DONE,
    TROUBLE,
    WHO,
    Order,
    asked,
    charge,
    errand,
    final,
    is_sound,
    kinds,
    orders,
    rounds,
    several,
    whole,
)


@step
def total(paid: list[int]) -> int:
    return sum(paid)


def test_what_waits_is_cancelled_and_undoes_its_work(fleet, office):
    execution_id = fleet.run(asked, Order(number=1))
    assert fleet.row(execution_id).status is Status.WAITING
    cancelled = office.cancel(execution_id, by="ada", why="the customer has called")
    assert (cancelled.status, cancelled.phase) == (Status.ACTIVE, Phase.COMPENSATING)
    assert list(fleet.queue) == [execution_id]
    fleet.drain()
    row = fleet.row(execution_id)
    assert row.status is Status.COMPENSATED
    assert row.error["code"] == "execution.cancelled"
    assert row.error["message"] == "cancelled by ada: the customer has called"
    assert DONE == ["reserve", "release"]
    (event,) = fleet.events(execution_id, EventName.CANCELLED)
    assert (event.details["by"], event.details["why"]) == ("ada", "the customer has called")
    assert is_sound(fleet)


def test_one_that_has_not_begun_ends_without_a_step(fleet, office):
    execution_id = fleet.start(orders, Order(number=1))
    office.cancel(execution_id, **WHO)
    fleet.drain()
    assert fleet.row(execution_id).status is Status.FAILED
    assert DONE == []


def test_whoever_runs_it_is_fenced(fleet, office):
    execution_id = fleet.start(orders, Order(number=1))
    with fleet.meanwhile(
        "step.after", lambda: office.cancel(execution_id, **WHO), step="reserve", kind="step"
    ):
        fleet.deliver(fleet.queue.popleft())
    fleet.drain()
    assert kinds(fleet, execution_id) == ["start:start", "compensating:compensation"]
    assert fleet.row(execution_id).status is Status.FAILED
    assert len(fleet.events(execution_id, EventName.LEASE_LOST)) == 1
    assert is_sound(fleet)


def test_children_are_cancelled_with_their_parent(fleet, office):
    TROUBLE["reserve"] = "ask"
    root = fleet.run(whole, Order(number=3))
    office.cancel(root, **WHO)
    fleet.drain()
    assert {e.status for e in fleet.store.lineage(root)} == {Status.COMPENSATED}
    assert is_sound(fleet)


def test_a_durable_task_ends_with_the_reason(fleet, office):
    TROUBLE["second"] = "ask"
    execution_id = fleet.run(errand, Order(number=1))
    office.cancel(execution_id, **WHO)
    fleet.drain()
    row = fleet.row(execution_id)
    assert (row.status, row.error["code"]) == (Status.FAILED, "execution.cancelled")


def test_what_has_ended_or_passed_its_pivot_is_not_cancelled(fleet, office):
    ended = fleet.run(orders, Order(number=1))
    with pytest.raises(ExecutionStateError, match="has ended"):
        office.cancel(ended, **WHO)
    TROUBLE["ship"] = "ask"
    past = fleet.run(final, Order(number=2))
    with pytest.raises(ExecutionStateError, match="has passed its pivot"):
        office.cancel(past, **WHO)
    with pytest.raises(ExecutionNotFoundError):
        office.cancel(uuid4(), **WHO)


def test_an_effect_in_doubt_is_decided_about_before_its_execution_is_cancelled(fleet, office):
    TROUBLE["pay"] = "doubt"
    execution_id = fleet.run(orders, Order(number=1))
    assert fleet.row(execution_id).status is Status.PARKED
    with pytest.raises(ExecutionStateError, match="decide about that first") as refused:
        office.cancel(execution_id, **WHO)
    assert refused.value.fields["next"] == f"fencepost effects {execution_id} --in-doubt"
    assert fleet.row(execution_id).phase is Phase.FORWARD


def test_so_is_a_childs(fleet, office):
    paying = Saga("paying", input=Order).then(charge)
    family = Saga("family", input=Order).map(paying, over=several, name="payments").then(total)
    fleet.engine.registry.add(family)
    TROUBLE["pay"] = "doubt"
    root, other = (fleet.run(family, Order(number=1)) for _ in range(2))
    (child,) = fleet.store.children(root, "payments", 1)
    with pytest.raises(ExecutionStateError, match="of its child") as refused:
        office.cancel(root, **WHO)
    assert str(child.execution_id) in refused.value.fields["next"]
    assert office.cancel(fleet.start(orders, Order(number=2)), **WHO)
    with pytest.raises(ExecutionStateError, match="decide about that first"):
        office.cancel(other, **WHO)


def test_what_continues_an_execution_is_cancelled_in_its_place(fleet, office):
    fleet.engine.registry.add(rounds)
    first = fleet.run(rounds, Order(number=1))
    cancelled = office.cancel(first, **WHO)
    assert cancelled.execution_id != first
    assert cancelled.lineage_id == first
    fleet.drain()
    assert fleet.row(cancelled.execution_id).error["code"] == "execution.cancelled"


@pytest.mark.parametrize("operation", ["cancel", "pause", "resume", "retry", "skip", "fork"])
@pytest.mark.parametrize("missing", ["by", "why"])
def test_every_operation_wants_to_know_who_and_why(fleet, office, operation, missing):
    execution_id = fleet.start(orders, Order(number=1))
    with pytest.raises(PayloadError, match=f"say {missing}"):
        getattr(office, operation)(execution_id, **WHO | {missing: " "})
    assert [e.name for e in fleet.store.events([execution_id])] == [EventName.STARTED]


def test_so_do_those_with_other_arguments(fleet, office):
    execution_id = fleet.start(orders, Order(number=1))
    nobody = {"by": "", "why": "x"}
    operations: tuple[Callable[[], Any], ...] = (
        lambda: office.resolve_step(execution_id, 1, **nobody),
        lambda: office.approve(execution_id, "manager", **nobody),
        lambda: office.reject(execution_id, "manager", **nobody),
        lambda: office.prune(timedelta(0), **nobody),
        lambda: office.repin("order", **nobody),
    )
    for operation in operations:
        with pytest.raises(PayloadError, match="say by"):
            operation()


def test_nothing_of_what_is_paused_is_begun_until_it_is_resumed(fleet, office):
    execution_id = fleet.start(orders, Order(number=1))
    paused = office.pause(execution_id, by="ada", why="the bank is down")
    assert paused.paused_at is not None
    fleet.drain()
    assert kinds(fleet, execution_id) == ["start:start"]
    assert [e.execution_id for e in office.resume(execution_id, **WHO)] == [execution_id]
    assert list(fleet.queue) == [execution_id]
    fleet.drain()
    assert fleet.row(execution_id).status is Status.SUCCEEDED
    (event,) = fleet.events(execution_id, EventName.PAUSED)
    assert (event.details["by"], event.details["why"]) == ("ada", "the bank is down")
    assert len(fleet.events(execution_id, EventName.RESUMED)) == 1


def test_what_is_not_paused_is_not_resumed(fleet, office):
    execution_id = fleet.start(orders, Order(number=1))
    with pytest.raises(ExecutionStateError, match="is not paused"):
        office.resume(execution_id, **WHO)
    fleet.drain()
    with pytest.raises(ExecutionStateError, match="can't be paused"):
        office.pause(execution_id, **WHO)
