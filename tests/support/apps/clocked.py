"""Sagas for workers whose clock is wrong; it is set when this is imported in one of them."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import time_machine

from fencepost import Saga, StepContext, step
from tests.support.apps.sagas import Order, first, second, third

AHEAD = "SAMPLE_CLOCK_AHEAD"
"""The environment variable that says by how many seconds."""

NAP = timedelta(seconds=2)


def _set(ahead: float) -> time_machine.Traveller:
    there = datetime.fromtimestamp(time.time() + ahead, UTC)
    return time_machine.travel(there, tick=True).start()


# The monotonic clock and the boot clock stay: nobody sets those.
_clock = _set(float(os.environ[AHEAD])) if AHEAD in os.environ else None


@step
def set_back(ctx: StepContext, order: Order) -> Order:
    """The clock is set in the middle of the step, which lasts longer than a lease."""
    assert _clock is not None
    time.sleep(order.seconds / 2)
    _clock.shift(timedelta(hours=order.count))
    time.sleep(order.seconds / 2)
    return order


line = Saga("line", input=Order).then(first).then(second).then(third)
stepped = Saga("stepped", input=Order).then(first).then(set_back).then(third)
napping = Saga("napping", input=Order).then(first).sleep("nap", NAP).then(third)

ALL: list[Saga[Order, Any]] = [line, stepped, napping]
