"""What an order does to the world outside the shop's database.

Both sinks dedupe by key, so a call may be repeated under the same key. The keys are the order's:
they stay the same in a forked or restarted execution.
"""

from __future__ import annotations

import os

from examples.order_saga import carrier
from examples.order_saga.model import Carriage, Order, Paid
from examples.refund_agent.payments import PaymentRefused, Payments, Refunded, RefundRequest
from fencepost import EffectCall, EffectKind, effect


def provider() -> Payments:
    """The payment provider's client; `ORDER_PROVIDER` is its URL."""
    return Payments(os.environ["ORDER_PROVIDER"])


@effect(kind=EffectKind.IDEMPOTENT, sink="payments", refused=(PaymentRefused,))
def charge_card(call: EffectCall, order: Order) -> str:
    """Take the customer's money; gives the charge's id."""
    return provider().charge(order.order_id, order.cents, key=call.key)


@effect(kind=EffectKind.IDEMPOTENT, sink="payments", refused=(PaymentRefused,))
def pay_back(call: EffectCall, paid: Paid) -> Refunded:
    """Give it back."""
    order = paid.order
    request = RefundRequest(order_id=order.order_id, amount_cents=order.cents, reason="cancelled")
    return provider().refund(request, key=call.key)


def _booked_by(carriage: Carriage, call: EffectCall, order: Order) -> str:
    return carrier.book(carriage, order.order_id, order.grams, key=call.key)


@effect(kind=EffectKind.IDEMPOTENT, sink="parcel-service")
def book_parcel(call: EffectCall, order: Order) -> str:
    """Have the parcel service fetch it; gives the label."""
    return _booked_by(Carriage.PARCEL, call, order)


@effect(kind=EffectKind.IDEMPOTENT, sink="forwarder")
def book_freight(call: EffectCall, order: Order) -> str:
    """Have a forwarder fetch it; gives the label."""
    return _booked_by(Carriage.FREIGHT, call, order)
