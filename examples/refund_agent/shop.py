"""The shop's side of a complaint: its orders, and what the agent is told about its job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

INSTRUCTIONS = """\
You handle complaints of a shop's customers. Look the order up before you decide.
Policy:
- An order that never arrived is refunded in full.
- An order that arrived damaged is refunded by 40 per cent.
- An order that arrived more than 3 days late is refunded by 10 to 30 per cent, as you see fit.
- Otherwise there is no refund.
Refund at most once. Then tell the customer in one sentence what was refunded, as an amount in
dollars, or that nothing was."""


class Complaint(BaseModel):
    """What a customer wrote.

    Attributes:
        id: The ticket.
        text: The customer's own words; they name the order.
        provider: Through which provider the order was paid.
    """

    id: str
    text: str
    provider: str


class OrderQuery(BaseModel):
    """The argument of `look_up_order`."""

    order_id: str


class Order(BaseModel):
    """What the shop knows about an order.

    Attributes:
        total_cents: What the customer paid.
        arrived: Whether the carrier has delivered it.
        days_late: Days between the promised and the real delivery.
        condition: As the carrier or the customer reported it: `fine` or `damaged`.
    """

    order_id: str
    total_cents: int
    arrived: bool
    days_late: int
    condition: str


class OrderNotFound(Exception):
    """There is no such order."""


class Orders:
    """The shop's orders: a JSON file for each.

    Args:
        folder: Where they are; made if absent.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, order: Order) -> None:
        """Write an order down."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path(order.order_id).write_text(order.model_dump_json())

    def find(self, order_id: str) -> Order:
        """Look an order up.

        Raises:
            OrderNotFound: There is none of that id.
        """
        try:
            return Order.model_validate(json.loads(self._path(order_id).read_text()))
        except FileNotFoundError:
            raise OrderNotFound(f"there is no order {order_id!r}") from None

    def _path(self, order_id: str) -> Path:
        # The id comes from a model: it must not lead out of the folder.
        if not order_id.replace("-", "").isalnum():
            raise OrderNotFound(f"{order_id!r} is no order number")
        return self._folder / f"{order_id}.json"


def conversation(complaint: Complaint) -> list[dict[str, Any]]:
    """How the conversation with the model begins."""
    return [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": complaint.text},
    ]
