"""The steps of an order, each beside the step that undoes it."""

from __future__ import annotations

from datetime import timedelta

from examples.order_saga import warehouse
from examples.order_saga.effects import book_freight, book_parcel, charge_card, pay_back
from examples.order_saga.model import Arrival, Carriage, Delivery, Order, Paid
from fencepost import (
    ChildResult,
    Failure,
    NeedsPerson,
    StepContext,
    TransactionalContext,
    step,
)


@step(transactional=True)
def release_stock(ctx: TransactionalContext, order: Order) -> None:
    """Put the goods back."""
    warehouse.release(ctx.session, order)


@step(transactional=True, compensate=release_stock)
def reserve_stock(ctx: TransactionalContext, order: Order) -> Order:
    """Keep the goods for this customer."""
    warehouse.reserve(ctx.session, order)
    return order


@step(effects=[pay_back])
def refund(ctx: StepContext, paid: Paid) -> None:
    """Give the money back."""
    ctx.perform(pay_back, paid, key=f"{paid.order.order_id}:refund")


@step(effects=[charge_card], compensate=refund, timeout=timedelta(seconds=30))
def charge(ctx: StepContext, order: Order) -> Paid:
    """Take the money."""
    charge_id = ctx.perform(charge_card, order, key=f"{order.order_id}:charge")
    return Paid(order=order, charge_id=charge_id)


@step(transactional=True)
def hand_over(ctx: TransactionalContext, paid: Paid) -> Paid:
    """Give the goods out of hand: the point of no return."""
    warehouse.hand_over(ctx.session, paid.order)
    return paid


@step(effects=[book_parcel])
def ship_parcel(ctx: StepContext, paid: Paid) -> Delivery:
    """Book the parcel service."""
    order = paid.order
    label = ctx.perform(book_parcel, order, key=f"{order.order_id}:ship")
    return Delivery(order_id=order.order_id, carrier=Carriage.PARCEL, label=label)


@step(effects=[book_freight])
def ship_freight(ctx: StepContext, paid: Paid) -> Delivery:
    """Book a forwarder."""
    order = paid.order
    label = ctx.perform(book_freight, order, key=f"{order.order_id}:ship")
    return Delivery(order_id=order.order_id, carrier=Carriage.FREIGHT, label=label)


@step(transactional=True)
def expect(ctx: TransactionalContext, delivery: Delivery) -> Delivery:
    """Note where the carrier's call about this order belongs: this very execution."""
    warehouse.expect(ctx.session, delivery.order_id, str(ctx.execution_id))
    return delivery


@step
def note_arrival(ctx: StepContext, arrival: Arrival) -> Delivery:
    """It is there."""
    delivery = ctx.input_as(Delivery)
    return delivery.model_copy(update={"signed_by": arrival.signed_by})


@step
def remind(failure: Failure[Delivery]) -> Delivery:
    """It isn't there yet: ask the carrier, and count that."""
    delivery = failure.input
    return delivery.model_copy(update={"reminders": delivery.reminders + 1})


@step
def give_up(failure: Failure[Delivery]) -> Delivery:
    """Nobody answers any more; the delivery stays unsigned."""
    return failure.input


@step
def close(results: list[ChildResult[Delivery]]) -> str:
    """What the customer is told in the end. A parcel that is lost is for a person to look for."""
    delivery = results[0].value
    if delivery is None or delivery.signed_by is None:
        raise NeedsPerson("the parcel is lost: find it, or pay the customer back")
    late = f", {delivery.reminders} reminder(s)" if delivery.reminders else ""
    return f"{delivery.order_id}: {delivery.label}, taken by {delivery.signed_by}{late}"


@step
def apologise(failure: Failure[Order]) -> str:
    """What the customer is told when the charge is refused."""
    return f"{failure.input.order_id}: not charged, nothing is kept for you ({failure.message})"
