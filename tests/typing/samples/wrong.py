"""What `mypy --strict` must object to; each line says with which code."""

from __future__ import annotations

from celery import Celery
from pydantic import BaseModel

import fencepost
from fencepost import Saga, StepContext, step


class Order(BaseModel):
    number: int


class Parcel(BaseModel):
    weight: float


@step
def pack(order: Order) -> Parcel:
    return Parcel(weight=order.number)


@step
def label(ctx: StepContext, parcel: Parcel) -> str:
    return str(parcel.weight)


@step
async def announce(text: str) -> int:
    return len(text)


def parcels_in(order: Order) -> list[Parcel]:
    return [Parcel(weight=order.number)]


def orders_in(parcel: Parcel) -> list[Order]:
    return [Order(number=int(parcel.weight))]


def define() -> None:
    good = Saga("good", input=Order).then(pack).then(label)
    Saga("starts wrong", input=Order).then(label)  # E: arg-type
    good.then(label)  # E: arg-type
    good.then(announce).then(announce)  # E: arg-type
    Saga("items", input=Order).map(good, over=parcels_in, name="m")  # E: arg-type
    Saga("over", input=Order).map(good, over=orders_in, name="m")  # E: arg-type
    good.continue_as_new(announce)  # E: arg-type

    fp = fencepost.install(Celery("typed"), sagas=[good])
    fp.start(good, Parcel(weight=1.0))  # E: misc
    number: int = fp.start(good, Order(number=1)).result()  # E: assignment
    print(number)
    fp.start(good, Order(number=1), kee="order:1")  # E: call-arg
    fencepost.install(Celery("typed"), sagas=[pack])  # E: list-item
    fencepost.strat(good, Order(number=1))  # E: attr-defined


@step
def unannotated(order):  # E: no-untyped-def
    return order


@step(attempts=3)  # E: call-overload untyped-decorator
def misdeclared(order: Order) -> Parcel:
    return Parcel(weight=order.number)
