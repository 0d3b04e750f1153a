"""What stops a body can't be swallowed by it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from fencepost import (
    NeedsPerson,
    TaskContext,
)
from fencepost.errors import (
    LeaseDeadlineError,
    ServiceUnavailableError,
)
from tests.support.inline import Inline
from tests.unit.durable.support import (
    Body,
    add_one,
    deploy,
    double,
    job,
    parked,
    pay_once,
    ran,
    result,
    steps_of,
    three,
)


def stubborn(ctx: TaskContext, number: int) -> str:
    try:
        ctx.run(double, number)
        ctx.perform(pay_once, number)
    except Exception as problem:  # noqa: BLE001 - the bad habit that is tested
        ran.append(f"swallowed {type(problem).__name__}")
    return "carried on"


def test_a_body_cannot_swallow_what_parks_it(fleet: Inline) -> None:
    deploy(stubborn)
    execution_id = fleet.run(job, 5)
    reason, found = parked(fleet, execution_id)
    assert found == "effect.in-doubt"
    assert "no answer" in reason
    assert ran == ["double 5", "pay_once 5"]


def test_a_body_cannot_swallow_a_mismatch(fleet: Inline) -> None:
    deploy(three)
    with fleet.killed_at("commit.after", step="double"):
        execution_id = fleet.run(job, 5)

    def other(ctx: TaskContext, number: int) -> str:
        try:
            ctx.run(add_one, number)
        except Exception:  # noqa: BLE001 - the same
            ran.append("swallowed")
        return "carried on"

    deploy(other)
    fleet.drain()
    assert parked(fleet, execution_id)[1] == "replay.step-mismatch"
    assert "swallowed" not in ran


@pytest.mark.parametrize("lost", [ServiceUnavailableError("the database is gone"), "lease"])
def test_a_body_cannot_swallow_that_nothing_was_recorded(
    fleet: Inline, lost: ServiceUnavailableError | str
) -> None:
    """Or else it would go a way that the record doesn't show, and a replay would not go."""

    def gone() -> None:
        if isinstance(lost, ServiceUnavailableError):
            raise lost
        fleet.expire_leases()
        for execution in fleet.live():
            fleet.deliver(execution.execution_id)

    def body(ctx: TaskContext, number: int) -> int:
        try:
            return ctx.run(double, number)
        except Exception as problem:  # noqa: BLE001 - the same
            ran.append(f"swallowed {type(problem).__name__}")
            return ctx.run(add_one, number)

    deploy(body)
    with fleet.meanwhile("step.after", gone, step="double"):
        execution_id = fleet.run(job, 5)
    fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == 10
    assert ran == ["double 5", "double 5"]
    assert steps_of(fleet, execution_id) == ["start:1", "double:1", "return:1"]


def swallows_all(ctx: TaskContext, number: int) -> str:
    try:
        ctx.perform(pay_once, number)
    except BaseException:  # noqa: BLE001 - the same
        ran.append("swallowed")
    ctx.run(double, number)
    return "carried on"


def returns_finally(ctx: TaskContext, number: int) -> str:
    try:
        ctx.perform(pay_once, number)
    finally:
        return "carried on"  # noqa: B012 - the same


def raises_finally(ctx: TaskContext, number: int) -> str:
    try:
        ctx.perform(pay_once, number)
    finally:
        raise NeedsPerson("another reason")


@pytest.mark.parametrize("body", [swallows_all, returns_finally, raises_finally])
def test_a_body_that_swallows_even_that_does_nothing_more(fleet: Inline, body: Body) -> None:
    deploy(body)
    execution_id = fleet.run(job, 5)
    assert parked(fleet, execution_id)[1] == "effect.in-doubt"
    assert "double 5" not in ran
    assert steps_of(fleet, execution_id) == ["start:1"]


def test_check_stops_a_body_whose_lease_is_lost(fleet: Inline) -> None:
    class Lost(Exception):
        pass

    def body(ctx: TaskContext, number: int) -> int:
        ctx.check()
        return number

    assert result(fleet, body, 3) == 3

    class Unsure:
        def run(self, *_: Any) -> Any: ...
        def perform(self, *_: Any) -> Any: ...
        def check(self) -> None:
            raise LeaseDeadlineError(UUID(int=1), held=1, current=1)

    ctx = TaskContext(
        execution_id=UUID(int=1), lineage_id=UUID(int=1), root_id=UUID(int=1), journal=Unsure()
    )
    with pytest.raises(LeaseDeadlineError):
        body(ctx, 3)
