"""The shop whose payments are raced: effects of every kind at real providers, and their sagas.

`shop.sending` is right before a request's first byte and `shop.landed` right after its answer,
inside the effect's function, where the engine can't see.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from examples.refund_agent.payments import PaymentRefused, StaleToken
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
    effect,
    faults,
    step,
)
from tests.acceptance.races.bank import Kind, bank

QUICK = RetryPolicy(
    attempts=8,
    first_delay=timedelta(seconds=0.1),
    max_delay=timedelta(seconds=0.5),
    retry_on=(Exception,),
)
RETENTION = timedelta(days=1)
IN_FLIGHT = timedelta(seconds=1.5)
"""Longer than the providers take to drop a request that comes late, or to book a delayed one."""


class Money(BaseModel):
    """An amount for an order.

    Attributes:
        cents: A whole number: the same amount has one form only.
        patience: Seconds that the caller waits for an answer.
    """

    order: str
    cents: int = 1_000
    patience: float = 5.0


def send(mode: str, kind: Kind, call: EffectCall, money: Money, **how: Any) -> str:
    """One request to the provider of this mode; returns the transfer's id."""
    faults.reach("shop.sending", order=money.order, kind=kind)
    client = bank(mode, timeout=money.patience)
    landed = client.move(kind, money.order, money.cents, reference=call.key, **how)
    faults.reach("shop.landed", order=money.order, kind=kind)
    return landed


# -- one refund, at each kind of provider ----------------------------------------------------


class ProviderFence:
    """The provider's own check of fence tokens."""

    def advance(self, resource: str, token: FenceToken) -> None:
        """See `FencedSink.advance`."""
        try:
            bank("fences").raise_fence(resource, str(token.execution_id), token.epoch)
        except StaleToken as stale:
            raise refused_by_fence(token, stale) from stale


def refused_by_fence(token: FenceToken, stale: StaleToken) -> StaleLeaseFenceError:
    """What the engine calls a provider's 412."""
    return StaleLeaseFenceError(
        token.execution_id, held=token.epoch, current=stale.current, step_key=token.step_key
    )


def send_fenced(kind: Kind, call: EffectCall, money: Money) -> str:
    """One request with key and token."""
    token = call.token
    try:
        return send(
            "fences", kind, call, money, key=call.key, fence=(str(token.execution_id), token.epoch)
        )
    except StaleToken as stale:
        raise refused_by_fence(token, stale) from stale


def order_of(money: Money) -> str:
    """What the provider's fence protects."""
    return money.order


@effect(
    kind=EffectKind.IDEMPOTENT,
    sink="dedupes",
    refused=(PaymentRefused,),
    retention=RETENTION,
    retry=QUICK,
)
def refund_deduped(call: EffectCall, money: Money) -> str:
    return send("dedupes", "refund", call, money, key=call.key)


@effect(
    kind=EffectKind.FENCED,
    sink="fences",
    fence=ProviderFence(),
    resource=order_of,
    refused=(PaymentRefused,),
    retry=QUICK,
)
def refund_fenced(call: EffectCall, money: Money) -> str:
    return send_fenced("refund", call, money)


def refund_found(call: EffectCall, _: Money) -> Landed[str] | NotLanded:
    """Ask the provider's own books."""
    faults.reach("shop.probing", key=call.key)
    found = bank("queryable").look_up("refund", call.key)
    faults.reach("shop.probed", key=call.key)
    return Landed(found) if found else NotLanded()


@effect(
    kind=EffectKind.RECONCILABLE,
    sink="queryable",
    probe=refund_found,
    in_flight=IN_FLIGHT,
    refused=(PaymentRefused,),
    retry=QUICK,
)
def refund_reconciled(call: EffectCall, money: Money) -> str:
    return send("queryable", "refund", call, money)


@effect(kind=EffectKind.AT_MOST_ONCE, sink="blind", refused=(PaymentRefused,), retry=QUICK)
def refund_blind(call: EffectCall, money: Money) -> str:
    return send("blind", "refund", call, money)


REFUNDS = {
    "dedupes": refund_deduped,
    "fences": refund_fenced,
    "queryable": refund_reconciled,
    "blind": refund_blind,
}


def _refunding(mode: str) -> Saga[Money, str]:
    chosen = REFUNDS[mode]

    @step(name="pay_back", effects=[chosen])
    def pay_back(ctx: StepContext, money: Money) -> str:
        return ctx.perform(chosen, money)

    return Saga(f"refund_{mode}", input=Money).then(pay_back)


refunds = {mode: _refunding(mode) for mode in REFUNDS}
