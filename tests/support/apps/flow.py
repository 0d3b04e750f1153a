"""One saga for each construct of control flow; every step notes that it ran, and can be killed.

A step has a crash point `<step>.inside` in mid-body and waits at the gate of its name; an undo
has `<step>.undoing`.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Any

from fencepost import (
    ChildResult,
    Collect,
    ErrorBranch,
    Failure,
    FencepostError,
    FirstFailure,
    Quorum,
    RetryPolicy,
    Saga,
    Step,
    StepContext,
    faults,
    step,
)
from tests.support.apps.gates import is_shut, wait_at
from tests.support.apps.sagas import Order, items_of
from tests.support.apps.sink import note

AT_ONCE = RetryPolicy(
    attempts=4,
    first_delay=timedelta(seconds=0.05),
    max_delay=timedelta(seconds=0.1),
    retry_on=(ConnectionError,),
)
ONCE = RetryPolicy(attempts=1)
DEADLINE = timedelta(seconds=1)


class BrokenError(FencepostError):
    """Something broke."""

    code = "flow.broken"


class CrackedError(BrokenError):
    """It broke in one particular way."""

    code = "flow.cracked"


# -- steps -----------------------------------------------------------------------------------


def _run(ctx: StepContext, order: Order) -> Order:
    note(ctx)
    facts = {"label": order.label, "index": order.index, "visit": ctx.visit}
    faults.reach(f"{ctx.step}.inside", attempt=ctx.attempt, **facts)
    wait_at(ctx.step)
    return order


def _undo(ctx: StepContext, order: Order) -> None:
    note(ctx, "undone")
    faults.reach(f"{ctx.step}.undoing", label=order.label, index=order.index, visit=ctx.visit)


def doing(name: str, **how: Any) -> Step[Order, Order]:
    """A step that can be undone."""
    return Step(_run, name=name, compensate=Step(_undo, name=f"un-{name}"), **how)


def plain(name: str, **how: Any) -> Step[Order, Order]:
    """A step without an undo."""
    return Step(_run, name=name, **how)


def failing(name: str, error: type[Exception] = BrokenError) -> Step[Order, Order]:
    """A step that fails for good, unless its item's index is spared."""

    def body(ctx: StepContext, order: Order) -> Order:
        _run(ctx, order)
        raise error(f"{name} can't be done")

    return Step(body, name=name, retry=ONCE)


@step
def sort(ctx: StepContext, item: Order) -> int:
    """Fails for the items that the order says."""
    _run(ctx, item)
    if item.index in item.failing:
        raise BrokenError(f"item {item.index}")
    return item.index


@step
def gather(ctx: StepContext, indexes: list[int]) -> list[int]:
    note(ctx)
    return indexes


@step
def survey(ctx: StepContext, results: list[ChildResult[int]]) -> list[int]:
    note(ctx)
    return [one.value if one.value is not None else -1 for one in results]


@step
def told(ctx: StepContext, failure: Failure[Order]) -> Order:
    note(ctx)
    faults.reach("told.inside", label=failure.input.label)
    return failure.input.model_copy(update={"label": f"told of {failure.code}"})


@step
def shouted(ctx: StepContext, failure: Failure[Order]) -> Order:
    note(ctx)
    faults.reach("shouted.inside", label=failure.input.label)
    return failure.input.model_copy(update={"label": f"shouted of {failure.code}"})


# -- sequence, and fan-outs by how they join -------------------------------------------------

sequence = Saga("sequence", input=Order).then(doing("one")).then(plain("two")).then(plain("three"))

picked = Saga("picked", input=Order).then(doing("pick")).then(sort)
begun = Saga("all", input=Order).then(doing("split"))
every = begun.map(picked, over=items_of, name="items").then(gather)
first_failure = (
    Saga("first", input=Order)
    .then(doing("split"))
    .map(picked, over=items_of, name="items", join=FirstFailure())
    .then(gather)
)
quorum = (
    Saga("quorum", input=Order)
    .then(doing("split"))
    .map(picked, over=items_of, name="items", join=Quorum(2))
    .then(gather)
)
collected = (
    Saga("collected", input=Order)
    .then(doing("split"))
    .map(picked, over=items_of, name="lots", join=Collect())
    .then(survey)
)

# -- branch, loop, child, continue as new ----------------------------------------------------


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


def size(order: Order) -> Size:
    return Size.LARGE if order.count > 1 else Size.SMALL


branch = (
    Saga("branch", input=Order)
    .then(doing("weigh"))
    .branch(
        "how",
        choose=size,
        cases={
            Size.SMALL: Saga("small", input=Order).then(plain("letter")),
            Size.LARGE: Saga("large", input=Order).then(plain("parcel")),
        },
    )
    .then(plain("stamp"))
)


def _less(ctx: StepContext, order: Order) -> Order:
    _run(ctx, order)
    return order.model_copy(update={"count": order.count - 1})


def more(order: Order) -> bool:
    return order.count > 0


less = Step[Order, Order](_less, name="less", compensate=Step(_undo, name="un-less"))
loop = Saga("loop", input=Order).loop(
    "down", Saga("body", input=Order).then(less), again=more, max_visits=3
)

trip = Saga("trip", input=Order).then(doing("fly")).then(doing("sleep"))
child = Saga("child", input=Order).child(trip).then(plain("tell"))


@step
def next_one(ctx: StepContext, order: Order) -> Order:
    if order.count == 0:
        raise CrackedError("that was the last")
    return _less(ctx, order)


@step
def last_one(ctx: StepContext, failure: Failure[Order]) -> Order:
    note(ctx)
    return failure.input


line = (
    Saga("line", input=Order)
    .continue_as_new(next_one)
    .on_error(ErrorBranch(CrackedError).finish(last_one))
)

# -- error branches, retries, deadline -------------------------------------------------------

inherited = (
    Saga("inherited", input=Order)
    .then(doing("hold"))
    .then(failing("crack", CrackedError))
    .on_error(ErrorBranch(BrokenError).finish(told))
    .on_error(ErrorBranch(Exception).finish(shouted))
)
by_default = (
    Saga("by-default", input=Order)
    .then(doing("hold"))
    .then(failing("drop", KeyError))
    .on_error(ErrorBranch(BrokenError).finish(told))
    .on_error(ErrorBranch(Exception).finish(shouted))
)

borrow = plain("borrow")


@step(retry=ONCE)
def carry(ctx: StepContext, order: Order) -> Order:
    """Fails if there is anything to carry."""
    _run(ctx, order)
    if order.count > 0:
        raise CrackedError("too heavy")
    return order


@step
def lighten(ctx: StepContext, order: Order) -> Order:
    note(ctx)
    faults.reach("lighten.inside", label=order.label)
    return order.model_copy(update={"count": 0})


renewed = (
    Saga("renewed", input=Order)
    .then(borrow)
    .then(carry)
    .on_error(
        ErrorBranch(CrackedError)
        .compensate(borrow, Step(_undo, name="un-borrow"))
        .then(told)
        .continue_as_new(lighten)
    )
)


@step(retry=AT_ONCE)
def flaky(ctx: StepContext, order: Order) -> int:
    _run(ctx, order)
    if ctx.attempt <= order.count:
        raise ConnectionError(f"attempt {ctx.attempt}")
    return ctx.attempt


retried = Saga("retried", input=Order).then(doing("hold")).then(flaky)
hurried = Saga("hurried", input=Order).then(doing("hold")).then(plain("hurry", deadline=DEADLINE))

# -- undoing, and the pivot ------------------------------------------------------------------

undone = (
    Saga("undone", input=Order)
    .then(doing("one"))
    .then(doing("two"))
    .then(doing("three"))
    .then(failing("four"))
)


@step
def close(ctx: StepContext, indexes: list[int]) -> list[int]:
    note(ctx)
    raise BrokenError("only the parent fails")


closed = (
    Saga("closed", input=Order)
    .then(doing("split"))
    .map(Saga("kept", input=Order).then(doing("pick")).then(sort), over=items_of, name="items")
    .then(close)
)
lonely = Saga("lonely", input=Order).child(trip).then(failing("four"))


@step(retry=ONCE)
def hand_over(ctx: StepContext, order: Order) -> Order:
    """Fails while its gate is shut."""
    note(ctx)
    if is_shut("counter"):
        raise BrokenError("nobody is there")
    return order


sale = Saga("sale", input=Order).then(doing("hold")).pivot(plain("sell")).then(hand_over)

ALL: list[Saga[Order, Any]] = [
    *(sequence, every, first_failure, quorum, collected, branch, loop, child, line),
    *(inherited, by_default, renewed, retried, hurried, undone, closed, lonely, sale),
]
