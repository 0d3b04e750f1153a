"""Sagas for every fault: plain and transactional steps, fan-outs, undos, branches, poison.

Each step notes in the sink that it ran, and has a crash point `<step>.inside` in mid-body.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from fencepost import (
    ErrorBranch,
    Failure,
    FencepostError,
    NeedsPerson,
    RetryPolicy,
    Saga,
    StepContext,
    TransactionalContext,
    faults,
    step,
)
from tests.support.apps.sink import apply_once, book, note

STEP_TIMEOUT = timedelta(seconds=1)


class Order(BaseModel):
    """The input of every saga.

    Attributes:
        label: Tells orders apart, in crash points too.
        count: How many items a fan-out has, or how often a step fails.
        failing: Indexes of items that fail for good.
        seconds: How long a step takes that takes long.
        index: The item's own, in a child.
    """

    label: str = ""
    count: int = 0
    failing: list[int] = []
    seconds: float = 0.0
    index: int = 0


class ShippingError(FencepostError):
    """No carrier takes it."""

    code = "order.not-shipped"


def _run(ctx: StepContext, order: Order) -> Order:
    note(ctx)
    faults.reach(f"{ctx.step}.inside", label=order.label, index=order.index)
    return order


# -- a line of plain steps, and one with a transactional step in the middle ------------------


@step
def first(ctx: StepContext, order: Order) -> Order:
    return _run(ctx, order)


@step
def second(ctx: StepContext, order: Order) -> Order:
    return _run(ctx, order)


@step
def third(ctx: StepContext, order: Order) -> str:
    apply_once(ctx)
    return _run(ctx, order).label


@step(transactional=True)
def ledgered(ctx: TransactionalContext, order: Order) -> Order:
    faults.reach("ledgered.before-sql", label=order.label)
    book(ctx)
    faults.reach("ledgered.inside", label=order.label)
    return order


line = Saga("line", input=Order).then(first).then(second).then(third)
booking = Saga("booking", input=Order).then(first).then(ledgered).then(third)


# -- fan-out ---------------------------------------------------------------------------------


@step
def unpick(ctx: StepContext, picked: Order) -> None:
    note(ctx, "undone")


@step(compensate=unpick)
def pick(ctx: StepContext, item: Order) -> Order:
    picked = _run(ctx, item)
    time.sleep(item.seconds)
    return picked


@step(transactional=True)
def pack(ctx: TransactionalContext, item: Order) -> int:
    book(ctx)
    if item.index in item.failing:
        raise ShippingError(f"item {item.index} doesn't fit", index=item.index)
    return item.index


@step
def split(ctx: StepContext, order: Order) -> Order:
    return _run(ctx, order)


@step
def gather(ctx: StepContext, indexes: list[int]) -> int:
    note(ctx)
    return sum(indexes)


def items_of(order: Order) -> list[Order]:
    return [order.model_copy(update={"index": index}) for index in range(order.count)]


item = Saga("item", input=Order).then(pick).then(pack)
parcels = (
    Saga("parcels", input=Order)
    .then(split)
    .map(item, over=items_of, name="items", max_concurrency=2, max_items=12)
    .then(gather)
)


# -- compensation and an error branch --------------------------------------------------------


@step
def release_stock(ctx: StepContext, reserved: Order) -> None:
    note(ctx, "undone")


@step(transactional=True)
def refund(ctx: TransactionalContext, charged: Order) -> None:
    book(ctx, "undone")


@step(compensate=release_stock)
def reserve(ctx: StepContext, order: Order) -> Order:
    return _run(ctx, order)


@step(transactional=True, compensate=refund)
def charge(ctx: TransactionalContext, order: Order) -> Order:
    book(ctx)
    return order


@step
def ship(ctx: StepContext, order: Order) -> str:
    _run(ctx, order)
    raise ShippingError("no carrier", label=order.label)


@step
def apologise(ctx: StepContext, failure: Failure[Order]) -> str:
    note(ctx)
    return f"sorry, {failure.input.label}: {failure.code}"


purchase = Saga("purchase", input=Order).then(reserve).then(charge).then(ship)
forgiven = (
    Saga("forgiven", input=Order)
    .then(reserve)
    .then(charge)
    .then(ship)
    # The same undo as the step's own: it still runs once.
    .on_error(
        ErrorBranch[Order, str](ShippingError).compensate(reserve, release_stock).finish(apologise)
    )
)


@step
def ask(ctx: StepContext, order: Order) -> Order:
    note(ctx)
    raise NeedsPerson(f"is {order.label} right?")


asked = Saga("asked", input=Order).then(ask)


# -- retries, deadlines, poison --------------------------------------------------------------

BACK_OFF = RetryPolicy(
    attempts=3, first_delay=timedelta(seconds=0.2), max_delay=timedelta(seconds=0.4)
)


@step(retry=BACK_OFF)
def flaky(ctx: StepContext, order: Order) -> int:
    note(ctx)
    if ctx.attempt <= order.count:
        raise ConnectionError(f"attempt {ctx.attempt}")
    return ctx.attempt


@step(timeout=STEP_TIMEOUT)
def hurried(ctx: StepContext, order: Order) -> Order:
    return _run(ctx, order)


@step(timeout=STEP_TIMEOUT, transactional=True)
def hurried_booking(ctx: TransactionalContext, order: Order) -> Order:
    faults.reach("hurried_booking.inside", label=order.label)
    book(ctx)
    return order


@step
def poison(ctx: StepContext, order: Order) -> Order:
    note(ctx)
    os.kill(os.getpid(), signal.SIGKILL)
    return order


retried = Saga("retried", input=Order).then(flaky)
timed = Saga("timed", input=Order).then(first).then(hurried).then(third)
timed_booking = Saga("timed_booking", input=Order).then(first).then(hurried_booking).then(third)
poisoned = Saga("poisoned", input=Order).then(first).then(poison).then(third)


# -- long steps ------------------------------------------------------------------------------


@step
def sleeps(ctx: StepContext, order: Order) -> Order:
    note(ctx)
    time.sleep(order.seconds)
    return order


@step
def blocks(ctx: StepContext, order: Order) -> Order:
    """Blocks its thread in C, where no library can switch to another greenlet."""
    note(ctx)
    ctypes.CDLL(None).usleep(int(order.seconds * 1e6))
    return order


sleeping = Saga("sleeping", input=Order).then(first).then(sleeps).then(third)
blocking = Saga("blocking", input=Order).then(first).then(blocks).then(third)

ALL: list[Saga[Order, Any]] = [
    line,
    booking,
    parcels,
    purchase,
    forgiven,
    asked,
    retried,
    timed,
    timed_booking,
    poisoned,
    sleeping,
    blocking,
]
