"""Three tasks, as in many projects: `celery -A examples.adopt_existing.before.tasks worker`."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from examples.adopt_existing import shop
from examples.adopt_existing.shop import gateway, mail

app = Celery("shop", broker=os.environ["SHOP_BROKER"], set_as_current=False)
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.broker_transport_options = {
    "visibility_timeout": float(os.environ.get("SHOP_VISIBILITY_TIMEOUT", "3600")),
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
}


@app.task(
    bind=True,
    name="shop.fulfil",
    autoretry_for=(ConnectionError, TimeoutError),
    retry_backoff=True,
)
def fulfil(_self: Any, number: str) -> str:
    """Charge an order, book it, and have the receipt sent."""
    order = shop.find(number)
    charge = gateway.charge(order, key=f"order-{number}")
    with shop.transaction() as session:
        shop.book(session, order, charge)
    send_receipt.delay(number)
    return charge


@app.task(name="shop.send_receipt")
def send_receipt(number: str) -> None:
    """Tell the customer."""
    order = shop.find(number)
    mail.send(order.mail, f"We have charged {order.cents / 100:.2f} for order {number}.")


@app.task(name="shop.report")
def report(item: str) -> int:
    """Each evening: what is left of an item. Harmless, however often it runs."""
    return shop.pieces(item)
