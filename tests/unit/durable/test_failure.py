"""Steps and bodies that fail: recorded, retried, raised again, or given to a person."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost import (
    NeedsPerson,
    Status,
    TaskContext,
    step,
)
from fencepost.errors import (
    PayloadError,
    StepFailedError,
)
from fencepost.records import CheckpointKind
from tests.support.inline import Inline
from tests.unit.durable.support import (
    deploy,
    double,
    error,
    fail,
    flaky,
    job,
    parked,
    ran,
    result,
    retried,
)


def test_a_failed_step_is_recorded_and_raised_again(fleet: Inline) -> None:
    def body(ctx: TaskContext, number: int) -> str:
        try:
            ctx.run(fail, number)
        except StepFailedError as failed:
            ran.append(f"caught {failed.fields['cause_code']}")
            ctx.run(double, number)
            return failed.message
        raise AssertionError

    deploy(body)
    with fleet.killed_at("commit.after", step="double"):
        execution_id = fleet.run(job, 7)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == "step 'fail' failed: no 7"
    assert ran.count("fail") == ran.count("double 7") == 1
    assert ran.count("caught step.raised") == 2
    kinds = [c.kind for c in fleet.store.chain(execution_id)]
    assert kinds[1] is CheckpointKind.STEP_FAILED


def test_a_failure_that_nobody_catches_fails_the_task(fleet: Inline) -> None:
    found = error(fleet, lambda ctx, number: ctx.run(fail, number))
    assert found["code"] == "task.step-failed"
    assert found["details"]["step"] == "fail"


def test_a_retried_step_repeats_none_before_it(fleet: Inline) -> None:
    def body(ctx: TaskContext, number: int) -> int:
        return ctx.run(flaky, ctx.run(double, number))

    assert result(fleet, body, 2) == 4
    assert ran == ["double 2", "flaky 1", "flaky 2", "flaky 3"]


def test_a_retried_body_repeats_no_step(fleet: Inline) -> None:
    def body(ctx: TaskContext, number: int) -> int:
        ran.append("body")
        doubled = ctx.run(double, number)
        if ran.count("body") < 3:
            raise ConnectionError("the body's own")
        return doubled

    assert result(fleet, body, 2, of=retried) == 4
    assert ran == ["body", "double 2", "body", "body"]


def test_a_body_that_always_fails_uses_its_attempts_up(fleet: Inline) -> None:
    def body(ctx: TaskContext, number: int) -> int:
        ctx.run(double, number)
        raise ConnectionError("for ever")

    deploy(body)
    row = fleet.row(fleet.run(retried, 2))
    assert row.status is Status.FAILED
    assert ran == ["double 2"]


@pytest.mark.parametrize("inside", [True, False])
def test_a_task_can_ask_for_a_person(fleet: Inline, inside: bool) -> None:
    @step
    def ask(number: int) -> int:
        raise NeedsPerson(f"is {number} right?")

    def body(ctx: TaskContext, number: int) -> int:
        if inside:
            return ctx.run(ask, number)
        raise NeedsPerson(f"is {number} right?")

    deploy(body)
    execution_id = fleet.run(job, 3)
    assert parked(fleet, execution_id) == ("is 3 right?", "execution.needs-person")


def test_a_result_that_does_not_fit_fails_the_task(fleet: Inline) -> None:
    deploy(lambda ctx, number: object())
    row = fleet.row(fleet.run(job, 1))
    assert row.error is not None
    assert row.error["code"] == "payload.invalid"


def test_an_input_that_does_not_fit_its_step_is_refused_before_anything_runs(
    fleet: Inline,
) -> None:
    wrong: Any = "not a number"

    def body(ctx: TaskContext, number: int) -> str:
        with pytest.raises(PayloadError, match="input of step 'double'"):
            ctx.run(double, wrong)
        return "refused"

    assert result(fleet, body) == "refused"
    assert ran == []
