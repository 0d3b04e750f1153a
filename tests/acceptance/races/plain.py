"""The same payments on Celery alone: `celery -A tests.acceptance.races.plain worker`.

As careful as it can be without a store of its own beside Celery: late acks, tasks of lost processes
are given back, a copy of a task that has succeeded isn't run again, errors that may pass are
retried. The task's id, which copies and retries share, protects each call in one of three ways:

- `keyed`: the provider dedupes by key, and the id is the key;
- `looks`: the provider can be asked, and the task looks for its id there before it pays;
- `blind`: neither; a call whose outcome is unknown isn't retried, and the task fails.

`plain.*` are crash points: `started`, `redelivered`, `looked`, `sending`, `landed`, `between`,
`checked` and `succeeded`.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from typing import Any

from celery import Celery, signals

from examples.refund_agent.payments import PaymentUnclear
from fencepost import faults
from tests.acceptance.races.bank import Kind, bank

BROKER = "RACES_BROKER"
BOOKS = "RACES_BOOKS"
"""File of the shop's own SQLite database."""

MODES = {"keyed": "dedupes", "looks": "queryable", "blind": "blind"}
VISIBILITY = 5

app = Celery(
    "plain", broker=os.environ.get(BROKER), backend=os.environ.get(BROKER), set_as_current=False
)
app.conf.update(
    # Celery's default is an hour; nobody is to wait that long.
    broker_transport_options={
        "visibility_timeout": VISIBILITY,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_deduplicate_successful_tasks=True,
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=True,
    task_track_started=True,
    broker_connection_retry_on_startup=True,
)

RETRIES: dict[str, Any] = {"retry_kwargs": {"countdown": 0.5, "max_retries": 40}}
FEW: dict[str, Any] = {"retry_kwargs": {"countdown": 0.5, "max_retries": 5}}


class MayPass(Exception):
    """Worth a retry."""


class OutcomeUnknown(Exception):
    """The money may have moved, and the provider can't tell."""


class OutOfStock(Exception):
    """It can't be shipped."""


@signals.task_success.connect
def _succeeded(sender: Any, **_: Any) -> None:
    faults.reach("plain.succeeded", order=(sender.request.kwargs or {}).get("order"))


def begin(task: Any, order: str) -> None:
    """Crash points of each run."""
    faults.reach("plain.started", order=order)
    if ran_before(task):
        faults.reach("plain.redelivered", order=order)


def ran_before(task: Any) -> bool:
    """Whether this may not be the first run."""
    return bool(task.request.delivery_info.get("redelivered") or task.request.retries)


def move(
    way: str,
    kind: Kind,
    order: str,
    cents: int,
    own_id: str,
    *,
    patience: float = 10.0,
    ask: str | None = None,
) -> str:
    """One payment, protected in that way; returns the transfer's id.

    Args:
        way: `keyed`, `looks` or `blind`.
        kind: Charge or refund.
        order: For the books.
        cents: How much.
        own_id: The same for all copies and retries of the task.
        patience: Seconds to wait for an answer.
        ask: Where to look, if not at the provider itself.
    """
    client = bank(MODES[way], timeout=patience)
    try:
        if way == "looks":
            found = (bank(ask) if ask else client).look_up(kind, own_id)
            faults.reach("plain.looked", order=order, kind=kind)
            if found:
                return found
        faults.reach("plain.sending", order=order, kind=kind)
        key = own_id if way == "keyed" else None
        landed = client.move(kind, order, cents, key=key, reference=own_id)
        faults.reach("plain.landed", order=order, kind=kind)
    except (PaymentUnclear, OSError) as problem:
        if way == "blind":
            raise OutcomeUnknown(str(problem)) from problem
        raise MayPass(str(problem)) from problem
    return landed


@app.task(bind=True, autoretry_for=(MayPass,), **RETRIES)
def pay(
    self: Any, *, way: str, kind: Kind, order: str, cents: int = 1_000, patience: float = 10.0
) -> str:
    """One payment."""
    begin(self, order)
    return move(way, kind, order, cents, self.request.id, patience=patience)


@app.task(bind=True, autoretry_for=(MayPass,), **FEW)
def pay_asking_elsewhere(self: Any, *, way: str, order: str) -> str:
    """One refund, looked for in every run but the first, where nobody answers."""
    begin(self, order)
    ask = "away" if ran_before(self) else None
    return move(way, "refund", order, 1_000, self.request.id, ask=ask)


@app.task(bind=True, autoretry_for=(MayPass,), **RETRIES)
def pay_under_key(self: Any, *, way: str, kind: Kind, order: str, key: str) -> str:
    """One payment under a business key."""
    begin(self, order)
    return move(way, kind, order, 1_000, key)


@app.task(bind=True, autoretry_for=(MayPass,), **RETRIES)
def pay_what_is_decided(self: Any, *, way: str, order: str) -> str:
    """A refund whose amount the world decides: a model, a setting, a newer version of the code."""
    begin(self, order)
    cents = decided(order)
    if cents == 0:
        return "not wanted"
    return move(way, "refund", order, cents, self.request.id)


@app.task(bind=True, autoretry_for=(MayPass,), **RETRIES)
def pay_in_two_parts(self: Any, *, way: str, order: str) -> list[str]:
    """Two refunds of one order."""
    begin(self, order)
    first = move(way, "refund", order, 400, f"{self.request.id}:1")
    faults.reach("plain.between", order=order)
    return [first, move(way, "refund", order, 400, f"{self.request.id}:2")]


@app.task(bind=True, autoretry_for=(MayPass,), **RETRIES)
def pay_then_stumble(self: Any, *, way: str, order: str) -> str:
    """A charge, and code behind it that fails."""
    begin(self, order)
    return move(way, "charge", order, 1_000, self.request.id).split("/")[1]


@app.task(bind=True, autoretry_for=(MayPass,), **RETRIES)
def purchase(self: Any, *, way: str, order: str) -> str:
    """Charge, ship, and give back what can't be shipped."""
    begin(self, order)
    move(way, "charge", order, 1_000, f"{self.request.id}:charge")
    try:
        ship(order)
    except OutOfStock:
        faults.reach("plain.between", order=order)
        move(way, "refund", order, 1_000, f"{self.request.id}:refund")
    return "cancelled"


def ship(order: str) -> None:
    """Never."""
    raise OutOfStock(order)


@app.task(bind=True, autoretry_for=(MayPass,), **RETRIES)
def charge_somewhere(self: Any, *, way: str, order: str) -> str:
    """If the first provider doesn't answer, take the second."""
    begin(self, order)
    try:
        return move(way, "charge", order, 1_000, self.request.id)
    except (MayPass, OutcomeUnknown):
        return bank("fences").move("charge", order, 1_000, key=self.request.id)


# -- with the shop's own books ---------------------------------------------------------------


def books() -> closing[sqlite3.Connection]:
    """The shop's own database."""
    connection = sqlite3.connect(os.environ[BOOKS], timeout=10, isolation_level=None)
    return closing(connection)


def credit(order: str, source: str) -> str:
    """Credit an account if nobody has: looked up first, then written."""
    with books() as shop:
        query = "SELECT count(*) FROM credits WHERE order_id = ?"
        (found,) = shop.execute(query, (order,)).fetchone()
    faults.reach("plain.checked", order=order, source=source)
    if not found:
        with books() as shop:
            shop.execute("INSERT INTO credits VALUES (?, ?)", (order, source))
    return "credited"


@app.task(bind=True)
def webhook(self: Any, *, order: str, source: str = "webhook") -> str:
    """The provider tells of a payment."""
    begin(self, order)
    return credit(order, source)


@app.task(bind=True, autoretry_for=(MayPass,), **RETRIES)
def charge_and_credit(self: Any, *, way: str, order: str) -> str:
    """The response path."""
    begin(self, order)
    move(way, "charge", order, 1_000, self.request.id)
    return credit(order, "response")


@app.task(bind=True, autoretry_for=(MayPass,), **RETRIES)
def refund_what_is_left(self: Any, *, way: str, order: str, cents: int) -> str:
    """A partial refund, if that much is left."""
    begin(self, order)
    with books() as shop:
        query = "SELECT cents FROM refundable WHERE order_id = ?"
        (left,) = shop.execute(query, (order,)).fetchone()
    faults.reach("plain.checked", order=order, source=str(cents))
    if left < cents:
        return "too much"
    landed = move(way, "refund", order, cents, self.request.id)
    with books() as shop:
        update = "UPDATE refundable SET cents = cents - ? WHERE order_id = ?"
        shop.execute(update, (cents, order))
    return landed


def decided(order: str) -> int:
    """The next amount for an order; the last one again and again."""
    with books() as shop:
        shop.execute("BEGIN IMMEDIATE")
        query = "SELECT amounts FROM decisions WHERE order_id = ?"
        amounts: list[int] = json.loads(shop.execute(query, (order,)).fetchone()[0])
        left = amounts[1:] or amounts
        shop.execute(
            "UPDATE decisions SET amounts = ? WHERE order_id = ?", (json.dumps(left), order)
        )
        shop.execute("COMMIT")
    return amounts[0]


SCHEMA = """
CREATE TABLE credits (order_id TEXT, source TEXT);
CREATE TABLE refundable (order_id TEXT PRIMARY KEY, cents INTEGER);
CREATE TABLE decisions (order_id TEXT PRIMARY KEY, amounts TEXT);
"""
