"""The moments at which a refund can go wrong, the same for both apps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from examples.refund_agent.provider import Mode
from examples.refund_agent.provider_faults import Fault
from examples.refund_agent.shop import Complaint, Order

TOTAL_CENTS = 12_000
VISIBILITY_TIMEOUT = 3.0
"""Seconds until the broker delivers again what nobody has acknowledged. Celery's default is an
hour; the demonstration is in a hurry."""

SLOW = VISIBILITY_TIMEOUT + 2.0


@dataclass(frozen=True)
class Window:
    """A moment and a fault.

    Attributes:
        name: For the command line and the report.
        title: For people.
        point: A crash point of `payments`, at which something happens to the first copy.
        action: `kill`: its worker is lost with all of its processes, as a machine would be.
            `freeze`: its process is stopped, and goes on when others have finished its work.
            `overtake`: it stands there until a second copy has come and gone.
        provider: What goes wrong at the provider.
        condition: What the complaint is about; `late` leaves the amount to the model.
    """

    name: str
    title: str
    point: str | None = None
    action: Literal["kill", "freeze", "overtake"] | None = None
    provider: Fault | None = None
    seconds: float = 0.0
    condition: Literal["damaged", "late"] = "damaged"

    def order(self, side: str, mode: Mode) -> Order:
        """The order that a cell of the table is about."""
        return Order(
            order_id=f"{self.name}-{mode}-{side}",
            total_cents=TOTAL_CENTS,
            arrived=True,
            days_late=9 if self.condition == "late" else 0,
            condition="damaged" if self.condition == "damaged" else "fine",
        )

    def complaint(self, order: Order, mode: Mode) -> Complaint:
        """What its customer wrote."""
        what = "came far too late" if self.condition == "late" else "arrived broken"
        text = f"My order {order.order_id} {what}. What are you going to do about it?"
        return Complaint(id=f"ticket-{order.order_id}", text=text, provider=mode)


BEFORE, LANDED = "payment.before-send", "payment.landed"

WINDOWS = (
    Window("smooth", "nothing goes wrong"),
    Window("killed-before", "killed before the call", BEFORE, "kill"),
    Window("killed-after", "killed after the refund landed", LANDED, "kill"),
    Window("frozen-before", "frozen before sending, thawed later", BEFORE, "freeze"),
    Window("frozen-after", "frozen after it landed, thawed later", LANDED, "freeze"),
    Window("answer-lost", "connection lost after it landed", provider=Fault.LOSE_ANSWER),
    Window("error-after", "error 500 after it landed", provider=Fault.ERROR_AFTER),
    Window("duplicate", "message delivered twice at once", BEFORE, "overtake"),
    Window("outlives", "task outlives visibility timeout", provider=Fault.DELAY, seconds=SLOW),
    Window(
        "other-amount",
        "killed after; model changes its mind",
        LANDED,
        "kill",
        condition="late",
    ),
)
