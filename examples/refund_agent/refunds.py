"""The refund as an effect, once for each kind of provider. This is the file to copy from.

Which kind is right is a question about the provider alone: what does it do with a request that it
gets twice, and can it be asked afterwards? Claim no more than it does.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from examples.refund_agent.environment import payments
from examples.refund_agent.payments import (
    PaymentRefused,
    Refunded,
    RefundRequest,
    StaleToken,
)
from fencepost import (
    Effect,
    EffectCall,
    EffectKind,
    FenceToken,
    Landed,
    NotLanded,
    StaleLeaseFenceError,
    Unknown,
    effect,
)

REFUSED = (PaymentRefused,)
"""Errors that say that nothing was booked. All others leave the outcome unknown."""


# It dedupes: hand it the key, and call again as often as you like, while it remembers the key.


@effect(
    kind=EffectKind.IDEMPOTENT,
    sink="pay-dedupes",
    refused=REFUSED,
    retention=timedelta(hours=24),
)
def refund_by_key(call: EffectCall, request: RefundRequest) -> Refunded:
    """Refund an order, in part or in full."""
    return payments("dedupes").refund(request, key=call.key)


# It checks fences: a takeover raises the fence before the new owner does anything, and what the
# old owner still sends is refused.


def stale(token: FenceToken, error: StaleToken) -> StaleLeaseFenceError:
    """The provider's refusal, in the engine's words."""
    return StaleLeaseFenceError(
        token.execution_id, held=token.epoch, current=error.current, step_key=token.step_key
    )


class ProviderFence:
    """Raises the provider's fence; see `fencepost.FencedSink`."""

    def advance(self, resource: str, token: FenceToken) -> None:
        """Let no older epoch refund this order any more."""
        try:
            payments("fences").raise_fence(resource, str(token.execution_id), token.epoch)
        except StaleToken as error:
            raise stale(token, error) from error


@effect(
    kind=EffectKind.FENCED,
    sink="pay-fences",
    refused=REFUSED,
    fence=ProviderFence(),
    resource=lambda request: str(request.order_id),
)
def refund_fenced(call: EffectCall, request: RefundRequest) -> Refunded:
    """Refund an order, in part or in full."""
    try:
        fence = (str(call.token.execution_id), call.token.epoch)
        return payments("fences").refund(request, key=call.key, fence=fence)
    except StaleToken as error:
        raise stale(call.token, error) from error


# It does neither, but can be asked. What it doesn't know (yet) may still be on its way, so "not
# there" counts only after the time in which a call lands or never does. That time has to be a
# fact. Here it is: a call is sent within a second on a connection made for it, or not at all; the
# provider drops a connection whose request takes longer than two seconds, and books what it has
# read within five.

SEND_WITHIN = timedelta(seconds=1)
IN_FLIGHT = timedelta(seconds=10)
"""All of that, and the lease, during which a holder that was frozen may still begin to send."""


def find_refund(call: EffectCall, request: RefundRequest) -> Landed[Refunded] | NotLanded | Unknown:
    """Ask the provider whether this refund is booked."""
    found = payments("queryable").find(call.key)
    if found is None:
        return NotLanded()
    if found.amount_cents != request.amount_cents:
        return Unknown(f"{found.id} has our reference, and {found.amount_cents} cents")
    return Landed(found)


@effect(
    kind=EffectKind.RECONCILABLE,
    sink="pay-queryable",
    refused=REFUSED,
    probe=find_refund,
    in_flight=IN_FLIGHT,
)
def refund_asked_for(call: EffectCall, request: RefundRequest) -> Refunded:
    """Refund an order, in part or in full."""
    send_within = min(SEND_WITHIN, call.time_left).total_seconds()
    return payments("queryable").refund(request, reference=call.key, send_within=send_within)


# It can do nothing: one call. When its outcome is unknown, a person looks at the statement.


@effect(kind=EffectKind.AT_MOST_ONCE, sink="pay-blind", refused=REFUSED)
def refund_blindly(call: EffectCall, request: RefundRequest) -> Refunded:
    """Refund an order, in part or in full."""
    return payments("blind").refund(request, reference=call.key)


REFUNDS: dict[str, Effect[Any, Any]] = {
    "dedupes": refund_by_key,
    "fences": refund_fenced,
    "queryable": refund_asked_for,
    "blind": refund_blindly,
}
"""By the provider's mode."""
