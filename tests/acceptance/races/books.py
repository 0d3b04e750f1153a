"""The shop's own books, in the ledger's database: accounts that webhooks and responses credit, and
what is left of a charge to refund."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from fencepost import (
    EffectCall,
    EffectKind,
    FencepostError,
    Saga,
    StepContext,
    TransactionalContext,
    effect,
    faults,
    step,
)
from tests.acceptance.races.shop import Money, refund_blind
from tests.acceptance.races.stories import charge_deduped

books = sa.MetaData()

credits_ = sa.Table(
    "shop_credits",
    books,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("order_id", sa.String(100), nullable=False),
    sa.Column("cents", sa.Integer, nullable=False),
    sa.Column("source", sa.String(20), nullable=False),
)
refundable = sa.Table(
    "shop_refundable",
    books,
    sa.Column("order_id", sa.String(100), primary_key=True),
    sa.Column("cents", sa.Integer, nullable=False),
)


class Payment(BaseModel):
    """A payment that the provider tells of.

    Attributes:
        charge: The provider's id of it.
    """

    order: str
    cents: int
    charge: str


@effect(kind=EffectKind.TRANSACTIONAL, sink="accounts")
def credit(call: EffectCall, payment: Payment) -> int:
    source = call.token.step_key.split(":")[1]
    row = {"order_id": payment.order, "cents": payment.cents, "source": source}
    call.session.execute(sa.insert(credits_), row)
    return payment.cents


def credit_once(ctx: TransactionalContext, payment: Payment) -> int:
    """The key is the provider's id of the payment, whoever hears of it first."""
    return ctx.perform(credit, payment, key=payment.charge)


@step(transactional=True, effects=[credit])
def from_webhook(ctx: TransactionalContext, payment: Payment) -> int:
    return credit_once(ctx, payment)


payment_event = Saga("payment_event", input=Payment).then(from_webhook)


@step(effects=[charge_deduped])
def take_for_credit(ctx: StepContext, money: Money) -> Payment:
    charge = ctx.perform(charge_deduped, money)
    return Payment(order=money.order, cents=money.cents, charge=charge)


@step(transactional=True, effects=[credit])
def from_response(ctx: TransactionalContext, payment: Payment) -> int:
    return credit_once(ctx, payment)


top_up = Saga("top_up", input=Money).then(take_for_credit).then(from_response)


@step(effects=[charge_deduped])
def capture(ctx: StepContext, money: Money) -> str:
    return ctx.perform(charge_deduped, money, key=f"capture:{money.order}")


capture_from_response = Saga("capture_from_response", input=Money).then(capture)
capture_from_webhook = Saga("capture_from_webhook", input=Money).then(capture)


class TooMuch(FencepostError):
    """More than is left of the charge."""

    code = "shop.too-much"


@step(transactional=True)
def unreserve(ctx: TransactionalContext, money: Money) -> None:
    ctx.session.execute(_change(money.order, money.cents))


@step(transactional=True, compensate=unreserve)
def reserve(ctx: TransactionalContext, money: Money) -> Money:
    enough = refundable.c.cents >= money.cents
    taking = _change(money.order, -money.cents).where(enough).returning(refundable.c.cents)
    if ctx.session.execute(taking).first() is None:
        raise TooMuch(f"{money.order} has less than {money.cents} cents left")
    faults.reach("shop.reserved", order=money.order, cents=money.cents)
    return money


def _change(order: str, cents: int) -> Any:
    update = sa.update(refundable).where(refundable.c.order_id == order)
    return update.values(cents=refundable.c.cents + cents)


@step(effects=[refund_blind])
def pay_back_reserved(ctx: StepContext, money: Money) -> str:
    return ctx.perform(refund_blind, money)


partial_refund = Saga("partial_refund", input=Money).then(reserve).then(pay_back_reserved)

ALL: list[Any] = [
    payment_event,
    top_up,
    capture_from_response,
    capture_from_webhook,
    partial_refund,
]
