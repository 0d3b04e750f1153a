"""A saga for each kind of effect: pay, then say thank you.

The effects' functions have a crash point of their own, `<effect>.sending`, right before the
request leaves: the last place where a caller can freeze.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from celery import Celery
from pydantic import BaseModel

import fencepost
from fencepost import (
    EffectCall,
    EffectKind,
    FenceToken,
    Landed,
    NotLanded,
    RetryPolicy,
    Saga,
    StaleLeaseFenceError,
    StepContext,
    TransactionalContext,
    Unknown,
    effect,
    faults,
    step,
)
from fencepost.errors import LeaseDeadlineError
from tests.support.provider import ProviderError, ask

PROVIDER = "PROVIDER_URL"

SOON = RetryPolicy(
    attempts=8,
    first_delay=timedelta(seconds=0.1),
    max_delay=timedelta(seconds=0.5),
    retry_on=(Exception,),
)


class Order(BaseModel):
    """The input of every saga, and the request of every effect.

    Attributes:
        reference: By it the sinks count.
        careful: The effect looks at its deadline once more right before it sends.
    """

    reference: str
    cents: int = 999
    careful: bool = False


class Payment(BaseModel):
    """What a sink answers."""

    number: int


class DeclinedError(Exception):
    """The provider says no."""


metadata = sa.MetaData()
bookings = sa.Table(
    "bookings",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("reference", sa.String(100), nullable=False),
    sa.Column("cents", sa.Integer, nullable=False),
)


def _post(mode: str, call: EffectCall, order: Order, **headers: str) -> Payment:
    faults.reach(f"{mode}.sending", reference=order.reference)
    if order.careful and time.monotonic() >= call.deadline:
        # Frozen since the engine looked at it, and this sink wouldn't notice.
        token = call.token
        raise LeaseDeadlineError(
            token.execution_id, held=token.epoch, current=token.epoch, step_key=token.step_key
        )
    try:
        answer = ask(
            os.environ[PROVIDER],
            "POST",
            f"/{mode}/payments",
            body=order.model_dump(),
            headers={"Idempotency-Key": call.key, **headers},
            timeout=max(0.1, call.time_left.total_seconds()),
        )
    except ProviderError as problem:
        if problem.answer["error"] == "stale-epoch":
            token = call.token
            current = problem.answer["current"]
            raise StaleLeaseFenceError(
                token.execution_id, held=token.epoch, current=current, step_key=token.step_key
            ) from problem
        raise DeclinedError(str(problem)) from problem
    return Payment(number=answer["payment"])


def header_of(token: FenceToken) -> dict[str, str]:
    """The fence token as the provider reads it."""
    return {"Fencing-Token": f"{token.execution_id};{token.epoch}"}


class ProviderFence:
    """Raises the provider's mark."""

    def advance(self, resource: str, token: FenceToken) -> None:
        """See `FencedSink.advance`."""
        try:
            ask(
                os.environ[PROVIDER],
                "POST",
                "/fenced/marks",
                body={"resource": resource},
                headers=header_of(token),
                timeout=2.0,
            )
        except ProviderError as problem:
            current = problem.answer["current"]
            raise StaleLeaseFenceError(
                token.execution_id, held=token.epoch, current=current, step_key=token.step_key
            ) from problem


@effect(kind=EffectKind.TRANSACTIONAL, sink="ledger")
def book(call: EffectCall, order: Order) -> Payment:
    """A row in the ledger's own database."""
    values = {"reference": order.reference, "cents": order.cents}
    insert = sa.insert(bookings).values(values).returning(bookings.c.id)
    return Payment(number=call.session.execute(insert).scalar_one())


@effect(
    kind=EffectKind.FENCED,
    sink="pay-fenced",
    fence=ProviderFence(),
    refused=(DeclinedError,),
    retry=SOON,
)
def pay_fenced(call: EffectCall, order: Order) -> Payment:
    """The provider checks the token and the key."""
    return _post("fenced", call, order, **header_of(call.token))


@effect(kind=EffectKind.IDEMPOTENT, sink="pay-keyed", refused=(DeclinedError,), retry=SOON)
def pay_keyed(call: EffectCall, order: Order) -> Payment:
    """The provider dedupes by key."""
    return _post("keyed", call, order)


def was_paid(call: EffectCall, order: Order) -> Landed[Payment] | NotLanded | Unknown:
    """Ask the provider."""
    query = f"/queryable/payments?reference={call.key}"
    found = ask(os.environ[PROVIDER], "GET", query, timeout=2.0)["payments"]
    if len(found) > 1:
        return Unknown(f"{order.reference} was paid {len(found)} times")
    return Landed(Payment(number=found[0])) if found else NotLanded()


@effect(
    kind=EffectKind.RECONCILABLE,
    sink="pay-queryable",
    probe=was_paid,
    refused=(DeclinedError,),
    retry=SOON,
)
def pay_queryable(call: EffectCall, order: Order) -> Payment:
    """The provider pays each time, and can be asked."""
    return _post("queryable", call, order)


@effect(kind=EffectKind.AT_MOST_ONCE, sink="pay-blind", refused=(DeclinedError,), retry=SOON)
def pay_blind(call: EffectCall, order: Order) -> Payment:
    """The provider pays each time, and can't be asked."""
    return _post("blind", call, order)


@step(transactional=True, effects=[book])
def transactional(ctx: TransactionalContext, order: Order) -> Payment:
    return ctx.perform(book, order)


@step(effects=[pay_fenced])
def fenced(ctx: StepContext, order: Order) -> Payment:
    return ctx.perform(pay_fenced, order)


@step(effects=[pay_keyed])
def idempotent(ctx: StepContext, order: Order) -> Payment:
    return ctx.perform(pay_keyed, order)


@step(effects=[pay_queryable])
def reconcilable(ctx: StepContext, order: Order) -> Payment:
    return ctx.perform(pay_queryable, order)


@step(effects=[pay_blind])
def at_most_once(ctx: StepContext, order: Order) -> Payment:
    return ctx.perform(pay_blind, order)


@step
def thank(payment: Payment) -> int:
    return payment.number


SAGAS: Mapping[EffectKind, Saga[Order, int]] = {
    EffectKind.TRANSACTIONAL: Saga("pay_transactional", input=Order)
    .then(transactional)
    .then(thank),
    EffectKind.FENCED: Saga("pay_fenced", input=Order).then(fenced).then(thank),
    EffectKind.IDEMPOTENT: Saga("pay_idempotent", input=Order).then(idempotent).then(thank),
    EffectKind.RECONCILABLE: Saga("pay_reconcilable", input=Order).then(reconcilable).then(thank),
    EffectKind.AT_MOST_ONCE: Saga("pay_at_most_once", input=Order).then(at_most_once).then(thank),
}
EFFECTS = {
    EffectKind.TRANSACTIONAL: book,
    EffectKind.FENCED: pay_fenced,
    EffectKind.IDEMPOTENT: pay_keyed,
    EffectKind.RECONCILABLE: pay_queryable,
    EffectKind.AT_MOST_ONCE: pay_blind,
}


def make(broker: str, **settings: Any) -> fencepost.Fencepost:
    """Fencepost on a new Celery app, for workers and for the tests that start executions."""
    app = Celery("effects", broker=broker, backend=broker, set_as_current=False)
    return fencepost.install(app, sagas=SAGAS.values(), **settings)
