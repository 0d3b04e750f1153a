"""Everything that a user writes, as `mypy --strict` must take it without a word."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from celery import Celery
from pydantic import BaseModel

import fencepost
from fencepost import (
    ErrorBranch,
    Failure,
    Fencepost,
    FencepostError,
    Handle,
    RetryPolicy,
    Saga,
    Step,
    StepContext,
    TransactionalContext,
    faults,
    step,
)


class Order(BaseModel):
    number: int


class Parcel(BaseModel):
    weight: float


class TooHeavyError(FencepostError):
    code = "parcel.too-heavy"


@step(transactional=True)
def unpack(ctx: TransactionalContext, parcel: Parcel) -> None:
    ctx.session.flush()


@step(
    name="pack-it",
    transactional=True,
    compensate=unpack,
    retry=RetryPolicy(attempts=2, retry_on=(ConnectionError,)),
    timeout=timedelta(minutes=1),
)
def pack(ctx: TransactionalContext, order: Order) -> Parcel:
    faults.reach("pack.before", order=order.number)
    return Parcel(weight=order.number / 2)


@step
def weigh(ctx: StepContext, parcel: Parcel) -> float:
    ctx.check()
    assert_type(ctx.result_of(pack), Parcel)
    assert_type(ctx.input_as(Order), Order)
    return parcel.weight


@step
def label(weight: float) -> str:
    return f"{weight} kg"


@step
async def announce(text: str) -> int:
    return len(text)


@step(timeout=timedelta(seconds=5))
async def announce_late(ctx: StepContext, length: int) -> bytes:
    return bytes(length)


@step
def total(lengths: list[float]) -> float:
    return sum(lengths)


@step
def again(failure: Failure[Order]) -> Order:
    return failure.input


@step
def apologise(failure: Failure[Order]) -> float:
    return 0.0


def orders_in(order: Order) -> list[Order]:
    return [order] * 2


assert_type(pack, Step[Order, Parcel])
assert_type(announce, Step[str, int])
assert_type(announce_late, Step[int, bytes])

single = Saga("single", input=Order).then(pack).then(weigh)
assert_type(single, Saga[Order, float])
assert_type(single.then(label).then(announce).then(announce_late), Saga[Order, bytes])

branch = ErrorBranch(TooHeavyError).compensate(pack, unpack).continue_as_new(again)
whole = (
    Saga("whole", input=Order)
    .map(single, over=orders_in, name="singles", max_concurrency=4, max_items=9)
    .then(total)
    .on_error(branch)
    .on_error(ErrorBranch(ConnectionError).finish(apologise))
)
assert_type(whole, Saga[Order, float])

app = Celery("typed")
fp = fencepost.install(app, sagas=[single, whole], database_url="sqlite:///typed.db", lease_ttl=5)
assert_type(fp, Fencepost)


def use() -> None:
    handle = fp.start(whole, Order(number=1), key="order:1")
    assert_type(handle, Handle[float])
    assert_type(handle.result(timeout=5), float)
    assert_type(fencepost.start(whole, Order(number=2)).result(), float)
