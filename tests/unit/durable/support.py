"""Steps, effects and tasks whose bodies are exchanged, and what the tests ask of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pydantic import BaseModel

from fencepost import (
    EffectCall,
    EffectKind,
    FenceToken,
    RetryPolicy,
    Status,
    StepContext,
    TaskContext,
    effect,
    step,
    task,
)
from fencepost.durable import DurableTask
from tests.support.inline import Inline

SOON = timedelta(0)
BACK_OFF = RetryPolicy(attempts=3, first_delay=SOON, max_delay=SOON)

ran: list[str] = []
"""What bodies and steps did, in order."""


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
