"""What goes from step to step. All of it is stored as JSON."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, Field

LARGE_CENTS = 50_000
"""From here on a person has to agree before the customer is charged."""

FREIGHT_GRAMS = 30_000
"""From here on the parcel service doesn't take it."""


class Order(BaseModel):
    """What a customer wants."""

    order_id: str
    sku: str
    quantity: int = Field(gt=0)
    cents: int = Field(gt=0)
    grams: int = Field(gt=0)


class Paid(BaseModel):
    """An order whose charge is booked.

    Attributes:
        charge_id: The provider's name for it.
    """

    order: Order
    charge_id: str


class Delivery(BaseModel):
    """A parcel on its way.

    Attributes:
        label: The carrier's name for it.
        reminders: How often the carrier was asked where it is.
        signed_by: Who took it; None while it is on its way.
    """

    order_id: str
    carrier: str
    label: str
    reminders: int = 0
    signed_by: str | None = None


class Arrival(BaseModel):
    """What the carrier tells when a parcel is there."""

    signed_by: str


class Size(StrEnum):
    """Whether a person has to look at an order."""

    ORDINARY = "ordinary"
    LARGE = "large"


class Carriage(StrEnum):
    """Who carries a parcel."""

    PARCEL = "parcel"
    FREIGHT = "freight"


def size_of(order: Order) -> Size:
    """Whether a person has to look at it."""
    return Size.LARGE if order.cents >= LARGE_CENTS else Size.ORDINARY


def carriage_of(paid: Paid) -> Carriage:
    """Who can carry it."""
    return Carriage.FREIGHT if paid.order.grams >= FREIGHT_GRAMS else Carriage.PARCEL


def only(delivery: Delivery) -> list[Delivery]:
    """What is fanned out over: one delivery."""
    return [delivery]


def on_its_way(delivery: Delivery) -> bool:
    """Whether nobody has taken it yet."""
    return delivery.signed_by is None
