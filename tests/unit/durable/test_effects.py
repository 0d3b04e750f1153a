"""Effects in durable tasks, and where they have no place."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from fencepost import (
    EffectCall,
    EffectKeyConflictError,
    EffectKind,
    EffectRefusedError,
    StepContext,
    TaskContext,
    TransactionalContext,
    effect,
    step,
    task,
)
from fencepost.effects import Effect
from fencepost.errors import (
    EffectOutsideStepError,
    SagaDefinitionError,
)
from tests.support.inline import Inline
from tests.unit.durable.support import (
    Body,
    Raised,
    book,
    deploy,
    double,
    error,
    job,
    pay,
    ran,
    store,
)


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
