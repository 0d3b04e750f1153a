"""The order saga: what happens in which order, and what happens when it doesn't."""

from __future__ import annotations

import os
from datetime import timedelta

from examples.order_saga.model import (
    Arrival,
    Carriage,
    Delivery,
    Order,
    Paid,
    Size,
    carriage_of,
    on_its_way,
    only,
    size_of,
)
from examples.order_saga.steps import (
    apologise,
    charge,
    close,
    expect,
    give_up,
    hand_over,
    note_arrival,
    remind,
    reserve_stock,
    ship_freight,
    ship_parcel,
)
from fencepost import (
    Collect,
    EffectRefusedError,
    ErrorBranch,
    LoopBoundError,
    Saga,
    Signal,
    WaitTimeoutError,
)

DECIDE_WITHIN = timedelta(days=2)
REMIND_AFTER = timedelta(days=float(os.environ.get("ORDER_REMIND_AFTER_DAYS", "3")))
MOST_REMINDERS = 10

APPROVAL = "large-order"
DELIVERED = Signal("delivered", Arrival)

# A person looks at large orders; the others just go on.
looked_at = Saga("looked-at", input=Order).approval(APPROVAL, timeout=DECIDE_WITHIN)
ordinary = Saga("ordinary", input=Order)

# One wait for the carrier's call. An execution of its own, so that its time-out ends the wait and
# not the order.
wait_once = (
    Saga("wait-once", input=Delivery)
    .then(expect)
    .wait_for(DELIVERED, timeout=REMIND_AFTER)
    .then(note_arrival)
    .on_error(ErrorBranch(WaitTimeoutError).finish(remind))
)
one_wait = Saga("one-wait", input=Delivery).child(wait_once)
delivery = (
    Saga("delivery", input=Delivery)
    .loop("until-delivered", one_wait, again=on_its_way, max_visits=MOST_REMINDERS)
    .on_error(ErrorBranch(LoopBoundError).finish(give_up))
)

order_saga = (
    Saga("order", input=Order)
    .then(reserve_stock)
    .branch(
        "by-size",
        choose=size_of,
        cases={Size.LARGE: looked_at, Size.ORDINARY: ordinary},
    )
    .then(charge)
    .pivot(hand_over)
    .branch(
        "by-weight",
        choose=carriage_of,
        cases={
            Carriage.PARCEL: Saga("by-parcel", input=Paid).then(ship_parcel),
            Carriage.FREIGHT: Saga("by-freight", input=Paid).then(ship_freight),
        },
    )
    # After the pivot nothing may fail that can't be tried again: how it ended is a value.
    .map(delivery, over=only, name="deliver", join=Collect(), max_items=1)
    .then(close)
    .on_error(ErrorBranch(EffectRefusedError).then(apologise))
)
