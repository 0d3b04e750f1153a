"""Sagas whose steps have a queue or a limit, or whose order of beginning is told."""

from __future__ import annotations

import time
from datetime import timedelta

from fencepost import Limit, Saga, StepContext, faults, step
from tests.support.apps.gates import wait_at
from tests.support.apps.sagas import Order, items_of
from tests.support.apps.sink import apply_once, note
from tests.support.apps.spans import timed

GPU = "gpu"


def _run(ctx: StepContext, order: Order) -> Order:
    note(ctx)
    faults.reach(f"{ctx.step}.inside", label=order.label, index=order.index)
    wait_at(ctx.step)
    return order


# -- queues ----------------------------------------------------------------------------------


@step
def fetch(ctx: StepContext, order: Order) -> Order:
    return _run(ctx, order)


@step(queue=GPU)
def render(ctx: StepContext, order: Order) -> Order:
    apply_once(ctx)
    return _run(ctx, order)


@step
def publish(ctx: StepContext, order: Order) -> str:
    return _run(ctx, order).label


@step
def draw(ctx: StepContext, order: Order) -> int:
    return _run(ctx, order).index


@step
def bind(ctx: StepContext, indexes: list[int]) -> int:
    note(ctx)
    return sum(indexes)


film = Saga("film", input=Order).then(fetch).then(render).then(publish)
frame = Saga("frame", input=Order, queue=GPU).then(draw)
frames = Saga("frames", input=Order).then(fetch).map(frame, over=items_of, name="items").then(bind)


# -- priorities ------------------------------------------------------------------------------


@step
def serve(ctx: StepContext, order: Order) -> int:
    return _run(ctx, order).index


errand = Saga("errand", input=Order).then(serve)


# -- limits ----------------------------------------------------------------------------------

SEATS = 2
RATE = 5
PER = timedelta(seconds=1)


def _limited(ctx: StepContext, order: Order) -> int:
    with timed(ctx, order.label):
        _run(ctx, order)
        time.sleep(order.seconds)
    return order.index


def by_label(order: Order) -> str:
    return order.label


@step(limit=Limit(name="seats", concurrency=SEATS))
def sit(ctx: StepContext, order: Order) -> int:
    return _limited(ctx, order)


@step(limit=Limit(name="tills", concurrency=1, key=by_label))
def pay(ctx: StepContext, order: Order) -> int:
    return _limited(ctx, order)


@step(limit=Limit(name="turnstile", rate=RATE, per=PER))
def enter(ctx: StepContext, order: Order) -> int:
    return _limited(ctx, order)


seated = Saga("seated", input=Order).then(sit)
paid = Saga("paid", input=Order).then(pay)
entered = Saga("entered", input=Order).then(enter)

ALL = [film, frames, errand, seated, paid, entered]
