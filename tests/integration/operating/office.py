"""Sagas that get into every state in which people have something to decide."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from fencepost import (
    STAYS,
    EffectCall,
    EffectKind,
    Quorum,
    Saga,
    Signal,
    StepContext,
    TaskContext,
    effect,
    step,
    task,
)
from fencepost.celery.operating import Operating
from fencepost.engine import Engine
from fencepost.errors import NeedsPerson
from fencepost.verify import verify
from tests.support.inline import Inline


class Order(BaseModel):
    number: int
    price: int = 5


TROUBLE: dict[str, str] = {}
"""What a step does instead of its work: "fail", "ask", "doubt"."""

DONE: list[str] = []
"""What steps have done, in order."""


def trouble(name: str) -> None:
    match TROUBLE.get(name):
        case "fail":
            raise RuntimeError(f"{name} has failed")
        case "ask":
            raise NeedsPerson(f"{name} needs somebody")
        case _:
            DONE.append(name)


@step
def release(order: Order) -> None:
    trouble("release")


@step(compensate=release)
def reserve(order: Order) -> Order:
    trouble("reserve")
    return order


@effect(kind=EffectKind.AT_MOST_ONCE, sink="bank")
def pay(call: EffectCall, request: Order) -> int:
    if TROUBLE.get("pay") == "doubt":
        raise TimeoutError("no answer")
    DONE.append(f"paid {request.number}")
    return request.price


@step(effects=[pay], compensate=STAYS)
def charge(ctx: StepContext, order: Order) -> int:
    paid = ctx.perform(pay, order)
    trouble("charge")
    return paid


@step
def ship(paid: int) -> str:
    trouble("ship")
    return f"shipped for {paid}"


@step
def thank(shipped: str) -> str:
    trouble("thank")
    return f"{shipped}, thanks"


orders = Saga("order", input=Order).then(reserve).then(charge).then(ship).then(thank)


@step
def look(order: Order) -> Order:
    trouble("look")
    return order


plain = Saga("plain", input=Order).then(look).then(charge)

final = Saga("final", input=Order).then(reserve).pivot(charge).then(ship)

asked = Saga("asked", input=Order).then(reserve).approval("manager", timeout=None).then(charge)


class Reading(BaseModel):
    value: int


reading = Signal("reading", Reading)


@step
def keep(found: Reading) -> int:
    trouble("keep")
    return found.value


told = Saga("told", input=Order).then(look).wait_for(reading, timeout=None).then(keep)


def several(order: Order) -> list[Order]:
    return [Order(number=number) for number in range(order.number)]


@step
def gather(found: list[Order]) -> int:
    trouble("gather")
    return len(found)


piece = Saga("piece", input=Order).then(reserve)
whole = (
    Saga("whole", input=Order)
    .then(look)
    .map(piece, over=several, name="pieces", join=Quorum(1))
    .then(gather)
)


@step
def first(order: Order) -> int:
    trouble("first")
    return order.number


@step
def second(number: int) -> int:
    trouble("second")
    return number + 1


@task
def errand(ctx: TaskContext, order: Order) -> int:
    number = ctx.run(first, order)
    return ctx.run(second, number)


@step
def next_round(order: Order) -> Order:
    if not order.number:
        raise NeedsPerson("another round?")
    return Order(number=order.number - 1)


rounds = Saga("rounds", input=Order).then(look).continue_as_new(next_round)


class Office(Operating):
    """The operations over an inline fleet."""

    def __init__(self, fleet: Inline) -> None:
        self._engine = fleet.engine
        self.registry = fleet.engine.registry

    @property
    def engine(self) -> Engine:
        return self._engine


SAGAS = (orders, plain, final, asked, told, whole, errand)

WHO: dict[str, Any] = {"by": "ada", "why": "it has to be"}

LONG_AGO = timedelta(days=30)


def kinds(fleet: Inline, execution_id: UUID) -> list[str]:
    return [f"{entry.kind}:{entry.step}" for entry in fleet.store.chain(execution_id)]


def is_sound(fleet: Inline) -> bool:
    url = fleet.database.url.render_as_string(hide_password=False)
    report = verify(url, None, None)
    assert report.ok, report.violations
    return True
