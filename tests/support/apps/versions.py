"""Families of sagas that a deploy leaves as they are, or changes in one way or the other.

Each has the same sagas: one for every state in which a deploy can find an execution.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum

from fencepost import NeedsPerson, RetryPolicy, Saga, Signal, StepContext, step
from tests.support.apps.gates import is_shut, wait_at
from tests.support.apps.sagas import Order, ShippingError, items_of
from tests.support.apps.sink import apply_once, note

OFTEN = RetryPolicy(
    attempts=10_000, first_delay=timedelta(seconds=0.5), max_delay=timedelta(seconds=1)
)
HELD = timedelta(seconds=12)

UNDO, RETRY = "undo", "retry"
"""Gates: while they are shut, undos and retried steps fail."""

GO = Signal("go", Order)


class Shape(Enum):
    """How a saga stands to what it was in the beginning."""

    FIRST = "first"
    APPENDED = "appended"
    """A step more at its end: what is in flight fits."""
    REWORKED = "reworked"
    """Another first step, in child sagas too: nothing in flight fits."""


def _run(ctx: StepContext, order: Order) -> Order:
    note(ctx)
    apply_once(ctx)
    return order


def _fail_while_shut(gate: str) -> None:
    if is_shut(gate):
        raise ConnectionError(f"{gate} is shut")


@step(retry=OFTEN)
def unbegin(ctx: StepContext, order: Order) -> None:
    _fail_while_shut(UNDO)
    note(ctx, "undone")


@step(compensate=unbegin)
def begin(ctx: StepContext, order: Order) -> Order:
    return _run(ctx, order)


@step(compensate=unbegin)
def begin_anew(ctx: StepContext, order: Order) -> Order:
    return _run(ctx, order)


@step
def work(ctx: StepContext, order: Order) -> Order:
    """Takes until the order's gate is open."""
    _run(ctx, order)
    wait_at(order.label)
    return order


@step
def ask(ctx: StepContext, order: Order) -> Order:
    raise NeedsPerson(f"is {order.label} right?")


@step
def refuse(ctx: StepContext, order: Order) -> Order:
    raise ShippingError("no carrier", label=order.label)


@step(retry=OFTEN)
def struggle(ctx: StepContext, order: Order) -> Order:
    _fail_while_shut(RETRY)
    return _run(ctx, order)


@step
def end(ctx: StepContext, order: Order) -> str:
    return _run(ctx, order).label


@step
def gather(ctx: StepContext, labels: list[str]) -> str:
    note(ctx)
    return labels[0]


@step
def stamp(ctx: StepContext, label: str) -> str:
    note(ctx)
    return label


@dataclass(frozen=True)
class Family:
    """One saga for each state; all take an order and give its label."""

    line: Saga[Order, str]
    parcels: Saga[Order, str]
    timer: Saga[Order, str]
    signalled: Saga[Order, str]
    asking: Saga[Order, str]
    refused: Saga[Order, str]
    retried: Saga[Order, str]

    @property
    def all(self) -> list[Saga[Order, str]]:
        """Child sagas come along with their parents."""
        return [getattr(self, field.name) for field in fields(self)]


def family(name: str, shape: Shape = Shape.FIRST) -> Family:
    """The sagas of a family, in one shape."""
    first = begin_anew if shape is Shape.REWORKED else begin

    def saga(kind: str) -> Saga[Order, Order]:
        return Saga(f"{name}-{kind}", input=Order).then(first)

    def ended(one: Saga[Order, str]) -> Saga[Order, str]:
        return one.then(stamp) if shape is Shape.APPENDED else one

    item = saga("item").then(work).then(end)
    fan_out = saga("parcels").map(item, over=items_of, name="items", max_concurrency=1)
    return Family(
        line=ended(saga("line").then(work).then(end)),
        parcels=ended(fan_out.then(gather)),
        timer=ended(saga("timer").sleep("hold", HELD).then(end)),
        signalled=ended(saga("signalled").wait_for(GO, timeout=None).then(end)),
        asking=ended(saga("asking").then(ask).then(end)),
        refused=ended(saga("refused").then(refuse).then(end)),
        retried=ended(saga("retried").then(struggle).then(end)),
    )


STEADY, BESIDE, APPENDED, REWORKED = NAMES = ("steady", "beside", "appended", "reworked")
OLD = {name: family(name) for name in NAMES}
NEW = {
    STEADY: OLD[STEADY],
    BESIDE: family(BESIDE, Shape.REWORKED),
    APPENDED: family(APPENDED, Shape.APPENDED),
    REWORKED: family(REWORKED, Shape.REWORKED),
}
