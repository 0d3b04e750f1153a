"""A wide fan-out, whose children can be held up inside."""

from __future__ import annotations

from fencepost import Saga, StepContext, faults, step
from tests.support.apps.gates import wait_at
from tests.support.apps.sagas import Order, items_of
from tests.support.apps.sink import note

CAP = 16


@step
def attend(ctx: StepContext, order: Order) -> int:
    note(ctx)
    faults.reach("attend.inside", index=order.index)
    wait_at("attend")
    return order.index


@step
def count(ctx: StepContext, indexes: list[int]) -> list[int]:
    note(ctx)
    return indexes


member = Saga("member", input=Order).then(attend)
crowd = (
    Saga("crowd", input=Order)
    .map(member, over=items_of, name="items", max_concurrency=CAP, max_items=1_000)
    .then(count)
)

ALL = [crowd]
