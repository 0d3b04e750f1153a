"""The same three tasks on Fencepost: `celery -A examples.adopt_existing.after.tasks worker`.

Beside the project's own settings it needs `FENCEPOST_DATABASE_URL`: the shop's database, in which
`fencepost migrate` has made Fencepost's tables beside the shop's.
"""

from __future__ import annotations

import os
from datetime import timedelta

from celery import Celery
from pydantic import BaseModel

import fencepost
from examples.adopt_existing import shop
from examples.adopt_existing.shop import Order, gateway, mail
from fencepost import EffectCall, EffectKind, TaskContext, TransactionalContext, effect, step

app = Celery("shop", broker=os.environ["SHOP_BROKER"], set_as_current=False)


class Paid(BaseModel):
    """An order and its charge."""

    order: Order
    charge: str


@step
def find(number: str) -> Order:
    """Read once: a rerun goes on with what the first run read."""
    return shop.find(number)


@effect(kind=EffectKind.IDEMPOTENT, sink="gateway", retention=timedelta(hours=24))
def charge(call: EffectCall, order: Order) -> str:
    """The gateway dedupes by key, for a day."""
    return gateway.charge(order, key=call.key)


@step(transactional=True)
def book(ctx: TransactionalContext, paid: Paid) -> None:
    """The booking and the record that it is done are one transaction."""
    shop.book(ctx.session, paid.order, paid.charge)


@effect(kind=EffectKind.AT_MOST_ONCE, sink="mail")
def send_receipt(_call: EffectCall, order: Order) -> None:
    """A mail server neither dedupes nor tells: in doubt, a person decides."""
    mail.send(order.mail, f"We have charged {order.cents / 100:.2f} for order {order.number}.")


@fencepost.task(effects=(charge, send_receipt))
def fulfil(ctx: TaskContext, number: str) -> str:
    """Charge an order, book it, and send the receipt."""
    order = ctx.run(find, number)
    # The key that the project has always used: what an old task has charged isn't charged again.
    paid = Paid(order=order, charge=ctx.perform(charge, order, key=f"order-{number}"))
    ctx.run(book, paid)
    ctx.perform(send_receipt, order)
    return paid.charge


@app.task(name="shop.fulfil")
def fulfil_as_before(number: str) -> None:
    """Messages that were sent before the change, and callers that know only the name."""
    fulfil.start(number, key=number)


@app.task(name="shop.report")
def report(item: str) -> int:
    """Each evening: what is left of an item. Harmless, however often it runs: unchanged."""
    return shop.pieces(item)


fp = fencepost.install(app, sagas=[fulfil])
