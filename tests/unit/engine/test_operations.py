"""The operations over the ports: with stores in memory, they do what they do with SQL."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from fencepost import NeedsPerson, Saga, Signal, Status, StepContext, TaskContext, step, task
from fencepost.commands import Definition
from fencepost.engine import repinning
from fencepost.engine.operations import Operations
from fencepost.errors import ExecutionStateError, PayloadError, UnknownSagaError
from fencepost.records import EventName, Phase
from tests.unit.effects.fleet import Fleet

STUCK: set[str] = set()
DONE: list[str] = []
WHO: dict[str, Any] = {"by": "ada", "why": "it has to be"}


class Order(BaseModel):
    number: int


def work(name: str) -> None:
    if name in STUCK:
        raise NeedsPerson(f"{name} is stuck")
    DONE.append(name)


@step
def put_back(order: Order) -> None:
    work("put_back")


@step(compensate=put_back)
def take(order: Order) -> Order:
    work("take")
    return order


@step
def send(ctx: StepContext, order: Order) -> int:
    work("send")
    return order.number


answer = Signal("answer", int)

orders = Saga("orders", input=Order).then(take).then(send)
questions = Saga("questions", input=Order).then(take).wait_for(answer, timeout=None)
approvals = Saga("approvals", input=Order).then(take).approval("boss", timeout=None).then(send)


@step
def count(order: Order) -> int:
    work("count")
    return order.number


@task
def errand(ctx: TaskContext, order: Order) -> int:
    return ctx.run(count, order)


@pytest.fixture
def fleet():
    STUCK.clear()
    DONE.clear()
    fleet = Fleet(orders, questions, approvals)
    fleet.engine.registry.add(errand)
    return fleet


@pytest.fixture
def people(fleet):
    return Operations(fleet.store, fleet.effects, fleet.engine.registry.find)


def deliver(fleet: Fleet) -> None:
    while fleet.queue:
        fleet.deliver(fleet.queue.popleft())


def start(fleet: Fleet, saga: Definition, number: int = 1) -> Any:
    execution, _ = fleet.engine.create(saga, Order(number=number))
    fleet.dispatch(execution)
    deliver(fleet)
    return execution.execution_id


def go_on(fleet: Fleet, execution_id: Any) -> Any:
    fleet.dispatch(fleet.row(execution_id))
    deliver(fleet)
    return fleet.row(execution_id)


def test_cancelling(fleet, people):
    execution_id = start(fleet, questions)
    people.cancel(execution_id, **WHO)
    assert go_on(fleet, execution_id).status is Status.COMPENSATED
    assert DONE == ["take", "put_back"]
    events = [event.name for event in fleet.store.events([execution_id])]
    assert EventName.CANCELLED in events


def test_pausing_and_resuming(fleet, people):
    execution, _ = fleet.engine.create(orders, Order(number=1))
    people.pause(execution.execution_id, **WHO)
    assert go_on(fleet, execution.execution_id).status is Status.ACTIVE
    assert [e.execution_id for e in people.resume(execution.execution_id, **WHO)] == [
        execution.execution_id
    ]
    assert go_on(fleet, execution.execution_id).status is Status.SUCCEEDED


def test_retrying_skipping_and_resolving(fleet, people):
    STUCK.add("send")
    retried, skipped, resolved = (start(fleet, orders, number) for number in (1, 2, 3))
    people.skip(skipped, **WHO)
    people.resolve_step(resolved, 33, **WHO)
    STUCK.clear()
    people.retry(retried, **WHO)
    assert go_on(fleet, retried).result == 1
    assert go_on(fleet, skipped).status is Status.COMPENSATED
    assert go_on(fleet, resolved).result == 33


def test_a_result_is_held_to_the_type(fleet, people):
    STUCK.add("send")
    execution_id = start(fleet, orders)
    with pytest.raises(PayloadError, match="result of step 'send'"):
        people.resolve_step(execution_id, "many", **WHO)
    with pytest.raises(PayloadError, match="result"):
        people.resolve_step(execution_id, float("nan"), **WHO)


def test_a_task_that_is_parked_at_its_body_is_only_tried_again(fleet, people):
    @task(name="stuck")
    def stuck(ctx: TaskContext, order: Order) -> int:
        raise NeedsPerson("what now?")

    fleet.engine.registry.add(stuck)
    execution_id = start(fleet, stuck)
    for decide in (people.skip, people.resolve_step):
        arguments = () if decide == people.skip else (1,)
        with pytest.raises(ExecutionStateError, match="its task's body and not at a step"):
            decide(execution_id, *arguments, **WHO)


def test_signals_and_approvals(fleet, people):
    execution_id = start(fleet, questions)
    sent = people.signal(execution_id, answer, 42)
    assert sent.wanted_now
    assert go_on(fleet, execution_id).result == 42
    asked = start(fleet, approvals)
    assert people.approve(asked, "boss", **WHO).created
    assert not people.approve(asked, "boss", by="bob", why="me too").created
    with pytest.raises(ExecutionStateError, match="ada has approved"):
        people.reject(asked, "boss", **WHO)
    assert go_on(fleet, asked).status is Status.SUCCEEDED


def test_forking(fleet, people):
    STUCK.add("send")
    execution_id = start(fleet, orders)
    STUCK.clear()
    fork = people.fork(execution_id, input=Order(number=7), **WHO)
    assert (fork.head_seq, fork.phase, fork.forked_from) == (1, Phase.FORWARD, execution_id)
    DONE.clear()
    assert go_on(fleet, fork.execution_id).status is Status.SUCCEEDED
    assert DONE == ["send"]
    # What comes along was computed from the input of the original.
    assert fleet.store.get(fork.execution_id).result == 1


def test_what_to_repin_to():
    other = orders.then(step(name="more")(_more))
    assert repinning.target([orders, questions], "orders", None) is orders
    assert repinning.target([orders, other], "orders", other.version) is other
    with pytest.raises(PayloadError, match="has several versions"):
        repinning.target([orders, other], "orders", None)
    for name, version in (("order", None), ("orders", "1")):
        with pytest.raises(UnknownSagaError):
            repinning.target([orders, other], name, version)


def _more(number: int) -> int:
    return number
