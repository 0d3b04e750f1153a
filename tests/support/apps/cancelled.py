"""Sagas to be cancelled in the middle of a step: each step but the last can be undone."""

from __future__ import annotations

from fencepost import Saga, StepContext, TaskContext, TransactionalContext, faults, step, task
from tests.support.apps.sagas import Order, items_of
from tests.support.apps.sink import book, note


def _run(ctx: StepContext, order: Order) -> Order:
    note(ctx)
    faults.reach(f"{ctx.step}.inside", label=order.label, index=order.index)
    return order


@step
def unreserve(ctx: StepContext, order: Order) -> None:
    note(ctx, "undone")


@step(transactional=True)
def refund(ctx: TransactionalContext, order: Order) -> None:
    book(ctx, "undone")


@step
def unpack(ctx: StepContext, order: Order) -> None:
    note(ctx, "undone")


@step
def recall(ctx: StepContext, order: Order) -> None:
    note(ctx, "undone")


@step(compensate=unreserve)
def reserve(ctx: StepContext, order: Order) -> Order:
    return _run(ctx, order)


@step(transactional=True, compensate=refund)
def charge(ctx: TransactionalContext, order: Order) -> Order:
    book(ctx)
    return order


@step(compensate=unpack)
def pack(ctx: StepContext, order: Order) -> Order:
    return _run(ctx, order)


@step(compensate=recall)
def ship(ctx: StepContext, order: Order) -> Order:
    return _run(ctx, order)


@step
def thank(ctx: StepContext, order: Order) -> str:
    return _run(ctx, order).label


@step
def count(ctx: StepContext, labels: list[str]) -> int:
    note(ctx)
    return len(labels)


order = Saga("order", input=Order).then(reserve).then(charge).then(pack).then(ship).then(thank)

parcel = Saga("parcel", input=Order).then(pack).then(ship).then(thank)
delivery = (
    Saga("delivery", input=Order)
    .then(reserve)
    .map(parcel, over=items_of, name="items", max_concurrency=2)
    .then(count)
)


@step
def look(ctx: StepContext, order: Order) -> Order:
    return _run(ctx, order)


@step
def report(ctx: StepContext, order: Order) -> str:
    return _run(ctx, order).label


@task
def survey(ctx: TaskContext, order: Order) -> str:
    """A durable task of two steps."""
    return ctx.run(report, ctx.run(look, order))


ALL = [order, delivery, survey]
