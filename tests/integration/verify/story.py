"""A run that has everything in it that a verifier looks at.

A parent fans out over three children. The worker of one child is frozen in the child's last step,
and comes back as a zombie with another payload. The gate then fails: everything is undone, and the
plan of the error branch leads to a second attempt. There a worker is killed before the gate; the
attempt succeeds all the same.
"""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel

from fencepost import (
    EffectCall,
    EffectKind,
    ErrorBranch,
    Failure,
    Saga,
    StepContext,
    TransactionalContext,
    effect,
    faults,
    step,
)
from tests.support.inline import Inline


class Order(BaseModel):
    count: int
    fail: bool = False


class Item(BaseModel):
    number: int


class Staged(BaseModel):
    number: int
    by_epoch: int = 0


class GateClosedError(Exception):
    pass


@effect(kind=EffectKind.IDEMPOTENT, sink="warehouse")
def upload(call: EffectCall, item: Item) -> str:
    return f"receipt of {item.number}"


@effect(kind=EffectKind.TRANSACTIONAL, sink="ledger")
def book(call: EffectCall, staged: Staged) -> int:
    return call.token.epoch


@step
def unstage(staged: Staged) -> None: ...


@step
def unlock(order: Order) -> None: ...


@step(compensate=unlock)
def lock(order: Order) -> Order:
    return order


@step(compensate=unlock)
def label(order: Order) -> Order:
    return order


@step(compensate=unstage, effects=[upload])
def stage(ctx: StepContext, item: Item) -> Staged:
    ctx.perform(upload, item)
    return Staged(number=item.number)


@step(transactional=True, effects=[book])
def attest(ctx: TransactionalContext, staged: Staged) -> Staged:
    ctx.perform(book, staged)
    return Staged(number=staged.number, by_epoch=ctx.epoch)


def items(order: Order) -> list[Item]:
    return [Item(number=number) for number in range(order.count)]


@step
def gate(ctx: StepContext, staged: list[Staged]) -> int:
    if ctx.input_as(Order).fail:
        raise GateClosedError("closed")
    faults.reach("gate.open")
    return sum(one.number for one in staged)


@step
def plan(failure: Failure[Order]) -> Order:
    return failure.input


@step
def again(order: Order) -> Order:
    return Order(count=order.count)


module = Saga("module", input=Item).then(stage).then(attest)
release = (
    Saga("release", input=Order)
    .then(lock)
    .then(label)
    .map(module, over=items, name="modules", max_concurrency=2)
    .then(gate)
    .on_error(ErrorBranch(GateClosedError).then(plan).continue_as_new(again))
)


def tell(fleet: Inline) -> UUID:
    """Run the story; returns the root execution."""
    root = fleet.start(release, Order(count=3, fail=True), key="story")
    with fleet.killed_at("gate.open"), fleet.frozen_at("step.before", step="attest"):
        fleet.drain()
    fleet.drain()
    return root
