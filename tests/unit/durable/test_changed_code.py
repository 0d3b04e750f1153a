"""Code that does something else than what is on record is parked, and mixes nothing."""

from __future__ import annotations

import pytest

from fencepost import (
    NeedsPerson,
    TaskContext,
    step,
)
from tests.support.inline import Inline
from tests.unit.durable.support import (
    Body,
    add_one,
    deploy,
    double,
    job,
    parked,
    ran,
    steps_of,
    three,
)


def renamed(ctx: TaskContext, number: int) -> int:
    ctx.run(add_one, number)
    return number


def reordered(ctx: TaskContext, number: int) -> int:
    return ctx.run(double, ctx.run(add_one, number))


def other_input(ctx: TaskContext, number: int) -> int:
    return ctx.run(add_one, ctx.run(double, number + 1))


def shortened(ctx: TaskContext, number: int) -> int:
    return ctx.run(double, number)


def inserted(ctx: TaskContext, number: int) -> int:
    ctx.run(double, number)
    ctx.run(double, number)
    return ctx.run(add_one, number)


def empty(ctx: TaskContext, number: int) -> int:
    return number


def raising(ctx: TaskContext, number: int) -> int:
    raise KeyError("a typing error, say")


def asking(ctx: TaskContext, number: int) -> int:
    raise NeedsPerson("who knows?")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (renamed, "on record is step 'double' (visit 1), but the code runs 'add_one' (visit 1)"),
        (reordered, "on record is step 'double' (visit 1), but the code runs 'add_one' (visit 1)"),
        (other_input, "on record is step 'double' (visit 1), but the code gives it another input"),
        (inserted, "on record is step 'add_one' (visit 1), but the code runs 'double' (visit 2)"),
        (shortened, "on record is step 'add_one' (visit 1), but the body returned"),
        (empty, "on record is step 'double' (visit 1), but the body returned"),
        (raising, "on record is step 'double' (visit 1), but the body raised KeyError"),
        (asking, "on record is step 'double' (visit 1), but the body raised NeedsPerson"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_changed_code_is_parked_and_goes_on_when_it_is_changed_back(
    fleet: Inline, changed: Body, says: str
) -> None:
    deploy(three)
    with fleet.killed_at("commit.after", step="add_one"):
        execution_id = fleet.run(job, 5)
    before = ran.copy()
    deploy(changed)
    fleet.drain()
    reason, found = parked(fleet, execution_id)
    assert (found, reason.startswith(says)) == ("replay.step-mismatch", True), reason
    assert "deploy the code that this execution was started with" in reason
    # No step ran: not the one that the changed code wanted, and not one that is on record.
    assert ran == before
    assert steps_of(fleet, execution_id) == ["start:1", "double:1", "add_one:1"]

    deploy(three)
    fleet.dispatch(fleet.store.unpark(execution_id, "the right code is back"))
    fleet.drain()
    assert fleet.row(execution_id).result == 12
    assert ran.count("double 5") == ran.count("add_one 10 at 1") == 1


def test_a_recorded_result_that_no_longer_fits_is_a_mismatch(fleet: Inline) -> None:
    @step(name="double")
    def worded(number: int) -> list[str]:
        raise AssertionError

    deploy(three)
    with fleet.killed_at("commit.after", step="double"):
        execution_id = fleet.run(job, 5)
    deploy(lambda ctx, number: ctx.run(worded, number))
    fleet.drain()
    reason, found = parked(fleet, execution_id)
    assert found == "replay.step-mismatch"
    assert "the stored result doesn't fit list[str]" in reason
