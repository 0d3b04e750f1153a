"""Sagas that wait for times, signals and people, and such as people have to decide about.

A step has a crash point `<step>.inside` in mid-body, an undo has `<step>.undoing`. A gate named
after the step holds it up; while the gate `counter` is shut, what needs the counter fails.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from fencepost import (
    DurableTask,
    ErrorBranch,
    Failure,
    FencepostError,
    NeedsPerson,
    RetryPolicy,
    Saga,
    Signal,
    Step,
    StepContext,
    TaskContext,
    faults,
    step,
    task,
)
from tests.support.apps.gates import is_shut, wait_at
from tests.support.apps.sagas import Order, items_of
from tests.support.apps.sink import note

ONCE = RetryPolicy(attempts=1)
TWICE = RetryPolicy(attempts=2, first_delay=timedelta(seconds=0.05), retry_on=(FencepostError,))
DEADLINE = timedelta(seconds=5)
LONG = timedelta(minutes=5)
SHORT = timedelta(seconds=2)


class ClosedError(FencepostError):
    """Nobody is at the counter."""

    code = "people.closed"


class Reading(BaseModel):
    """What a signal carries."""

    value: int


READING = Signal("reading", Reading)

# -- steps -----------------------------------------------------------------------------------


def _run(ctx: StepContext, order: Order) -> Order:
    note(ctx)
    faults.reach(f"{ctx.step}.inside", label=order.label, index=order.index)
    wait_at(ctx.step)
    return order


def _undo(ctx: StepContext, order: Order) -> None:
    note(ctx, "undone")
    faults.reach(f"{ctx.step}.undoing", label=order.label, index=order.index)


def _undo_at_counter(ctx: StepContext, order: Order) -> None:
    _undo(ctx, order)
    if is_shut("counter"):
        raise ClosedError("the undo needs the counter")


def _run_at_counter(ctx: StepContext, order: Order) -> Order:
    note(ctx)
    faults.reach(f"{ctx.step}.inside", label=order.label)
    if is_shut("counter"):
        raise ClosedError("the step needs the counter")
    return order


def _fail(ctx: StepContext, order: Order) -> Order:
    _run(ctx, order)
    raise ClosedError("never open")


def _ask(ctx: StepContext, order: Order) -> Order:
    _run(ctx, order)
    raise NeedsPerson(f"is {order.label} right?")


def plain(name: str) -> Step[Order, Order]:
    """A step without an undo."""
    return Step(_run, name=name)


def _hold() -> Step[Order, Order]:
    return Step(_run, name="hold", compensate=Step(_undo, name="un-hold"))


hold, linger, after, look = _hold(), plain("linger"), plain("after"), plain("look")
stuck = Step[Order, Order](
    _run, name="stuck", compensate=Step(_undo_at_counter, name="un-stuck", retry=TWICE)
)
drop = Step[Order, Order](_fail, name="drop", retry=ONCE)
counter = Step[Order, Order](_run_at_counter, name="counter", retry=ONCE)
asks = Step[Order, Order](_ask, name="asks")
pick = Step[Order, Order](_run, name="pick", compensate=Step(_undo, name="un-pick"))


@step
def heard(ctx: StepContext, reading: Reading) -> int:
    note(ctx)
    faults.reach("heard.inside")
    return reading.value


@step
def told(ctx: StepContext, failure: Failure[Order]) -> Order:
    note(ctx)
    return failure.input


@step
def gather(ctx: StepContext, orders: list[Order]) -> int:
    note(ctx)
    return len(orders)


@step
def tally(ctx: StepContext, order: Order) -> str:
    """What came along, and the input of this very run."""
    _run(ctx, order)
    return f"{order.label} for {ctx.input_as(Order).label}"


# -- time ------------------------------------------------------------------------------------


def as_long(order: Order) -> timedelta:
    return timedelta(seconds=order.seconds)


def moment(order: Order) -> datetime:
    """Here, an order's seconds are a Unix time."""
    return datetime.fromtimestamp(order.seconds, UTC)


hurried = Saga("hurried", input=Order, deadline=DEADLINE).then(hold).then(linger)
nap = Saga("nap", input=Order).then(hold).sleep("nap", as_long).then(after)
alarm = Saga("alarm", input=Order).then(hold).until("morning", moment).then(after)

# -- signals and approvals -------------------------------------------------------------------

listening = Saga("listening", input=Order).then(hold).wait_for(READING, timeout=LONG).then(heard)
two_readings = (
    Saga("two-readings", input=Order)
    .then(hold)
    .wait_for(READING, timeout=LONG, name="one")
    .wait_for(READING, timeout=LONG, name="two")
    .then(heard)
)
unheard = Saga("unheard", input=Order).then(hold).wait_for(READING, timeout=SHORT).then(heard)
expense = Saga("expense", input=Order).then(hold).approval("spend", timeout=LONG).then(after)
ignored = Saga("ignored", input=Order).then(hold).approval("spend", timeout=SHORT).then(after)

# -- what people decide about ----------------------------------------------------------------

stubborn = Saga("stubborn", input=Order).then(hold).then(stuck).then(drop)
busy = Saga("busy", input=Order).then(hold).then(linger).then(after)
asked = Saga("asked", input=Order).then(hold).then(asks).then(after)
forgiven = (
    Saga("forgiven", input=Order)
    .then(hold)
    .then(drop)
    .on_error(ErrorBranch(Exception).finish(told))
)
picked = Saga("picked", input=Order).then(pick).then(after)
parcels = Saga("parcels", input=Order).then(hold).map(picked, over=items_of, name="items")
counted = parcels.then(gather)
reopened = Saga("reopened", input=Order).then(look).then(counter).then(after)
forked = Saga("forked", input=Order).then(look).then(tally)


@task
def survey(ctx: TaskContext, order: Order) -> str:
    """A durable task of three steps. The first is given the label only.

    So a fork that has it on record may have another count.
    """
    seen = ctx.run(look, Order(label=order.label))
    passed = ctx.run(counter, seen.model_copy(update={"count": order.count}))
    ctx.run(after, passed)
    return f"{passed.count} for {order.label}"


ALL: list[Saga[Order, Any] | DurableTask[Order, Any]] = [
    *(hurried, nap, alarm, listening, two_readings, unheard, expense, ignored, stubborn, busy),
    *(asked, forgiven, counted, reopened, forked, survey),
]
