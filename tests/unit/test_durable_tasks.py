"""Durable tasks on the real engine and SQLite, in this process: replay, failure, interruption."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from pydantic import BaseModel

from fencepost import (
    EffectCall,
    EffectKeyConflictError,
    EffectKind,
    EffectRefusedError,
    FenceToken,
    NeedsPerson,
    RetryPolicy,
    Saga,
    Status,
    StepContext,
    TaskContext,
    TransactionalContext,
    effect,
    step,
    task,
)
from fencepost.durable import DurableTask
from fencepost.effects import Effect
from fencepost.errors import (
    EffectOutsideStepError,
    LeaseDeadlineError,
    PayloadError,
    SagaDefinitionError,
    ServiceUnavailableError,
    StepFailedError,
)
from fencepost.records import CheckpointKind, EventName
from tests.support.inline import Inline

SOON = timedelta(0)
BACK_OFF = RetryPolicy(attempts=3, first_delay=SOON, max_delay=SOON)

ran: list[str] = []
"""What bodies and steps did, in order."""


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


# -- what the tasks are made of --------------------------------------------------------------


class Declined(Exception):
    pass


class Point(BaseModel):
    x: int


@step
def double(number: int) -> int:
    ran.append(f"double {number}")
    return number * 2


@step
def add_one(ctx: StepContext, number: int) -> int:
    ran.append(f"add_one {number} at {ctx.visit}")
    return number + 1


@step
def fail(number: int) -> int:
    ran.append("fail")
    raise ValueError(f"no {number}")


@step(retry=BACK_OFF)
def flaky(ctx: StepContext, number: int) -> int:
    ran.append(f"flaky {ctx.attempt}")
    if ctx.attempt < 3:
        raise ConnectionError("try again")
    return number


@effect(kind=EffectKind.IDEMPOTENT, sink="bank", refused=(Declined,))
def pay(call: EffectCall, cents: int) -> str:
    ran.append(f"pay {cents}")
    if cents > 100:
        raise Declined("too much")
    return call.key


@effect(kind=EffectKind.AT_MOST_ONCE, sink="bank")
def pay_once(call: EffectCall, cents: int) -> str:
    ran.append(f"pay_once {cents}")
    raise ConnectionError("no answer")


@effect(kind=EffectKind.TRANSACTIONAL, sink="ledger")
def book(call: EffectCall, cents: int) -> int:
    call.session.execute(sa.text("INSERT INTO booked (cents) VALUES (:cents)"), {"cents": cents})
    return cents


class Raised:
    """A fence that notes who raised it."""

    def advance(self, resource: str, token: FenceToken) -> None:
        ran.append(f"fence {token.epoch}")


@effect(kind=EffectKind.FENCED, sink="vault", fence=Raised())
def store(call: EffectCall, number: int) -> int:
    ran.append(f"store {number} at {call.token.epoch}")
    return number


Body = Callable[[TaskContext, int], Any]
code: list[Body] = []
"""What the body of `job` does now: deploying other code is replacing this."""


@task(effects=(pay, pay_once, book, store))
def job(ctx: TaskContext, number: int) -> Any:
    return code[0](ctx, number)


@task(retry=RetryPolicy(attempts=3, first_delay=SOON, max_delay=SOON))
def retried(ctx: TaskContext, number: int) -> int:
    return int(code[0](ctx, number))


@pytest.fixture
def fleet(sqlite_url: str) -> Iterator[Inline]:
    fleet = Inline(sqlite_url, [job, retried])
    with fleet.database.begin() as connection:
        connection.execute(sa.text("CREATE TABLE booked (cents INTEGER)"))
    yield fleet
    fleet.close()


def deploy(body: Body) -> None:
    code[:] = [body]


def result(fleet: Inline, body: Body, number: int = 1, of: DurableTask[int, Any] = job) -> Any:
    """Run a body to its success."""
    deploy(body)
    row = fleet.row(fleet.run(of, number))
    assert row.status is Status.SUCCEEDED, row
    return row.result


def error(fleet: Inline, body: Body, number: int = 1) -> dict[str, Any]:
    """Run a body to its failure."""
    deploy(body)
    row = fleet.row(fleet.run(job, number))
    assert row.status is Status.FAILED, row
    assert isinstance(row.error, dict)
    return row.error


def parked(fleet: Inline, execution_id: UUID) -> tuple[str, str]:
    """Why it is parked: the reason and the error's code."""
    row = fleet.row(execution_id)
    assert row.status is Status.PARKED, row
    return row.parked_reason or "", (row.error or {}).get("code", "")


def steps_of(fleet: Inline, execution_id: UUID) -> list[str]:
    return [f"{c.step}:{c.visit}" for c in fleet.store.chain(execution_id)]


def three(ctx: TaskContext, number: int) -> int:
    ran.append("body")
    doubled = ctx.run(double, number)
    once = ctx.run(add_one, doubled)
    return ctx.run(add_one, once)


# -- replay ----------------------------------------------------------------------------------


def test_a_body_runs_its_steps_in_order_and_each_is_recorded(fleet: Inline) -> None:
    deploy(three)
    execution_id = fleet.run(job, 5)
    assert fleet.row(execution_id).result == 12
    assert ran == ["body", "double 5", "add_one 10 at 1", "add_one 11 at 2"]
    assert steps_of(fleet, execution_id) == [
        "start:1",
        "double:1",
        "add_one:1",
        "add_one:2",
        "return:1",
    ]


@pytest.mark.parametrize(
    ("point", "match", "again"),
    [
        ("step.before", {"step": "double"}, []),
        ("step.after", {"step": "double"}, ["double 5"]),
        ("commit.before", {"step": "double"}, ["double 5"]),
        ("commit.after", {"step": "double"}, []),
        ("step.before", {"step": "add_one"}, []),
        ("step.after", {"step": "add_one"}, ["add_one 10 at 1"]),
        ("commit.after", {"step": "add_one"}, []),
        ("commit.before", {"step": "return"}, []),
        ("commit.after", {"step": "return"}, []),
    ],
)
def test_what_is_recorded_is_not_run_again(
    fleet: Inline, point: str, match: dict[str, str], again: list[str]
) -> None:
    deploy(three)
    with fleet.killed_at(point, **match):
        execution_id = fleet.run(job, 5)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == 12
    work = [what for what in ran if what != "body"]
    assert sorted(work) == sorted(["double 5", "add_one 10 at 1", "add_one 11 at 2", *again])


def test_a_zombie_of_a_body_changes_nothing(fleet: Inline) -> None:
    deploy(three)
    with fleet.frozen_at("commit.before", step="add_one"):
        execution_id = fleet.run(job, 5)
    row = fleet.row(execution_id)
    assert (row.status, row.result, row.epoch) == (Status.SUCCEEDED, 12, 2)
    assert len(fleet.events(execution_id, EventName.LEASE_LOST)) == 1
    assert len(steps_of(fleet, execution_id)) == 5


def test_recorded_results_come_back_as_their_types(fleet: Inline) -> None:
    @step
    def make(number: int) -> Point:
        return Point(x=number)

    def body(ctx: TaskContext, number: int) -> int:
        made = ctx.run(make, number)
        assert isinstance(made, Point)
        return ctx.run(double, made.x)

    deploy(body)
    with fleet.killed_at("commit.after", step="make"):
        execution_id = fleet.run(job, 4)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == 8


def test_a_plain_function_is_a_step(fleet: Inline) -> None:
    def half(number: int) -> float:
        return number / 2

    assert result(fleet, lambda ctx, number: ctx.run(half, number), 3) == 1.5


def test_loops_count_visits(fleet: Inline) -> None:
    def body(ctx: TaskContext, number: int) -> int:
        for _ in range(4):
            number = ctx.run(double, number)
        return number

    deploy(body)
    with fleet.killed_at("commit.after", step="double"):
        execution_id = fleet.run(job, 1)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == 16
    assert steps_of(fleet, execution_id)[1:-1] == [f"double:{n}" for n in (1, 2, 3, 4)]
    assert ran == ["double 1", "double 2", "double 4", "double 8"]


# -- coroutines ------------------------------------------------------------------------------


def test_coroutine_bodies_and_steps_run_to_their_end(fleet: Inline) -> None:
    @step
    async def fetch(number: int) -> int:
        await asyncio.sleep(0)
        ran.append("fetch")
        return number + 1

    async def body(ctx: TaskContext, number: int) -> int:
        fetched = ctx.run(fetch, number)
        await asyncio.sleep(0)
        return ctx.run(double, fetched)

    deploy(body)
    with fleet.killed_at("commit.after", step="fetch"):
        execution_id = fleet.run(job, 1)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == 4
    assert ran == ["fetch", "double 2"]


def test_a_coroutine_body_is_parked_like_any_other(fleet: Inline) -> None:
    async def body(ctx: TaskContext, cents: int) -> str:
        await asyncio.sleep(0)
        return ctx.perform(pay_once, cents)

    deploy(body)
    execution_id = fleet.run(job, 5)
    assert parked(fleet, execution_id)[1] == "effect.in-doubt"


# -- failure ---------------------------------------------------------------------------------


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


# -- changed code ----------------------------------------------------------------------------


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


# -- what a body can't swallow ---------------------------------------------------------------


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


# -- where steps and effects have no place ---------------------------------------------------


def test_a_step_within_a_step_is_refused(fleet: Inline) -> None:
    def body(ctx: TaskContext, number: int) -> int:
        @step
        def outer(inner: int) -> int:
            return ctx.run(double, inner)

        return ctx.run(outer, number)

    found = error(fleet, body)
    assert found["details"]["cause_code"] == "saga.invalid-definition"
    assert "while another step runs" in found["message"]
    assert ran == []


def test_the_name_of_the_end_is_taken(fleet: Inline) -> None:
    @step(name="return")
    def mine(number: int) -> int:
        return number

    found = error(fleet, lambda ctx, number: ctx.run(mine, number))
    assert found["code"] == "saga.invalid-definition"


def undeclared_in_body(ctx: TaskContext, number: int) -> Any:
    return ctx.perform(_stray(), number)


def undeclared_in_step(ctx: TaskContext, number: int) -> Any:
    stray = _stray()

    @step(effects=[stray])
    def hidden(inner: StepContext, value: int) -> int:
        return inner.perform(stray, value)

    return ctx.run(hidden, number)


def _stray() -> Effect[int, int]:
    @effect(kind=EffectKind.FENCED, sink="vault", fence=Raised())
    def stray(call: EffectCall, number: int) -> int:
        ran.append("stray")
        return number

    return stray


@pytest.mark.parametrize("body", [undeclared_in_body, undeclared_in_step])
def test_an_effect_that_the_task_does_not_declare_is_refused(fleet: Inline, body: Body) -> None:
    """Its fence would not be raised at a takeover."""
    found = error(fleet, body)
    assert found["code"] == EffectOutsideStepError.code
    assert "@task(effects=(...))" in found["message"]
    assert ran == []


def test_a_function_that_takes_no_context_is_no_task() -> None:
    body: Any = double.function
    with pytest.raises(SagaDefinitionError, match=r"must take \(ctx: TaskContext, input\)"):
        task(body)


# -- effects ---------------------------------------------------------------------------------


def test_an_effect_is_performed_once_under_its_own_key(fleet: Inline) -> None:
    def body(ctx: TaskContext, cents: int) -> list[str]:
        return [ctx.perform(pay, cents), ctx.perform(pay, cents), ctx.perform(pay, 7, key="o:1")]

    deploy(body)
    with fleet.killed_at("effect.applied"):
        execution_id = fleet.run(job, 5)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == [
        f"{execution_id}:pay:1:pay:1",
        f"{execution_id}:pay:2:pay:1",
        "o:1",
    ]
    assert ran.count("pay 5") == 3  # the first of them twice, under one key
    records = fleet.engine.effects.of_execution(execution_id)
    assert [record.calls for record in records] == [2, 1, 1]


def test_a_refusal_is_raised_again_as_what_it_was(fleet: Inline) -> None:
    def body(ctx: TaskContext, cents: int) -> str:
        try:
            ctx.perform(pay, cents)
        except EffectRefusedError as refused:
            ctx.run(double, cents)
            return refused.message
        raise AssertionError

    deploy(body)
    with fleet.killed_at("commit.after", step="double"):
        execution_id = fleet.run(job, 500)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == "bank refused 'pay': too much"
    assert ran == ["pay 500", "double 500"]


def test_a_key_that_stands_for_another_request_is_a_conflict(fleet: Inline) -> None:
    def body(ctx: TaskContext, cents: int) -> str:
        ctx.perform(pay, cents, key="order:1")
        try:
            ctx.perform(pay, cents + 1, key="order:1")
        except EffectKeyConflictError as conflict:
            ctx.run(double, cents)
            return f"{conflict.fields['key']} {conflict.fields['sink']}"
        raise AssertionError

    deploy(body)
    with fleet.killed_at("commit.after", step="double"):
        execution_id = fleet.run(job, 5)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == "order:1 bank"
    assert ran == ["pay 5", "double 5"]


@pytest.mark.parametrize(
    "point", ["step.after", "transaction.before-commit", "transaction.after-commit"]
)
def test_a_transactional_effect_lands_with_its_checkpoint(fleet: Inline, point: str) -> None:
    deploy(lambda ctx, cents: ctx.perform(book, cents))
    with fleet.killed_at(point, step="book"):
        execution_id = fleet.run(job, 30)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == 30
    with fleet.database.connect() as connection:
        assert connection.execute(sa.text("SELECT cents FROM booked")).scalars().all() == [30]


def test_a_transactional_step_lands_with_its_checkpoint(fleet: Inline) -> None:
    @step(transactional=True)
    def note(ctx: TransactionalContext, cents: int) -> int:
        ctx.session.execute(sa.text("INSERT INTO booked VALUES (:cents)"), {"cents": cents})
        return cents

    deploy(lambda ctx, cents: ctx.run(note, cents))
    with fleet.killed_at("transaction.before-commit", step="note"):
        execution_id = fleet.run(job, 30)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == 30
    with fleet.database.connect() as connection:
        assert connection.execute(sa.text("SELECT cents FROM booked")).scalars().all() == [30]


def test_a_takeover_raises_the_fence_before_the_body_runs(fleet: Inline) -> None:
    def body(ctx: TaskContext, number: int) -> int:
        ran.append("body")
        return ctx.perform(store, number)

    deploy(body)
    with fleet.killed_at("effect.applied", effect="store"):
        execution_id = fleet.run(job, 4)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == 4
    assert ran == ["body", "store 4 at 1", "fence 2", "body", "store 4 at 2"]


def test_a_step_with_effects_runs_in_a_task_that_declares_them(fleet: Inline) -> None:
    @step(effects=[pay])
    def settle(ctx: StepContext, cents: int) -> list[str]:
        return [ctx.perform(pay, cents), ctx.perform(pay, cents + 1)]

    deploy(lambda ctx, cents: ctx.run(settle, cents))
    with fleet.killed_at("effect.confirmed"):
        execution_id = fleet.run(job, 1)
        fleet.expire_leases()
    fleet.drain()
    key = f"{execution_id}:settle:1:pay"
    assert fleet.row(execution_id).result == [f"{key}:1", f"{key}:2"]
    assert ran == ["pay 1", "pay 2"]


# -- starting --------------------------------------------------------------------------------


def test_the_function_can_be_called_as_one() -> None:
    class Doubles:
        """What a unit test gives instead of the engine's journal."""

        def run(self, step: Any, value: Any) -> Any:
            return step(value)

        def perform(self, effect: Any, request: Any, key: str | None) -> Any:
            return f"{effect.name} {request} {key}"

        def check(self) -> None: ...

    ctx = TaskContext(
        execution_id=UUID(int=1), lineage_id=UUID(int=1), root_id=UUID(int=1), journal=Doubles()
    )
    deploy(lambda ctx, number: [ctx.run(double, number), ctx.perform(pay, 1, key="k")])
    assert job(ctx, 4) == [8, "pay 1 k"]


def test_tasks_start_under_their_names_and_keys(
    fleet: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Any, ...]] = []

    def start(*given: Any, **named: Any) -> str:
        started.append((*given, named))
        return "handle"

    monkeypatch.setattr("fencepost.celery.start", start)
    handles: list[Any] = [job.start(3, key="order:3"), job.delay(4)]
    assert handles == ["handle", "handle"]
    assert started == [
        (job, 3, {"key": "order:3", "session": None}),
        (job, 4, {"key": None, "session": None}),
    ]
    deploy(three)
    one, two = fleet.start(job, 5, key="k"), fleet.start(job, 5, key="k")
    fleet.drain()
    assert one == two
    assert ran.count("double 5") == 1
    assert fleet.row(one).saga == "job"


def test_a_version_follows_the_types_and_not_the_body() -> None:
    def one(ctx: TaskContext, number: int) -> int:
        return number

    def two(ctx: TaskContext, number: int) -> int:
        return ctx.run(double, number)

    def three(ctx: TaskContext, number: str) -> int:
        return len(number)

    versions = [task(name="t")(body).version for body in (one, two)]
    assert versions[0] == versions[1]
    assert task(name="t")(three).version != versions[0]


def test_a_task_and_a_saga_live_side_by_side(fleet: Inline) -> None:
    line = Saga("line", input=int).then(double).then(add_one)
    fleet.engine.registry.add(line)
    assert fleet.row(fleet.run(line, 3)).result == 7
    assert result(fleet, three, 3) == 8
