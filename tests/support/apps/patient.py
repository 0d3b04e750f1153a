"""The sagas of a workload, with steps that try again while their own database is away."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fencepost import RetryPolicy, Saga, Step
from tests.support.apps import sagas
from tests.support.apps.sagas import Order
from tests.support.queues import redelivered_after

AGAIN = RetryPolicy(
    attempts=50,
    first_delay=timedelta(seconds=0.2),
    max_delay=timedelta(seconds=1),
    retry_on=(Exception,),
)


def patient(step: Step[Any, Any]) -> Step[Any, Any]:
    """The same step, with more attempts."""
    return Step(
        step.function,
        name=step.name,
        transactional=step.transactional,
        compensate=step.compensation,
        retry=AGAIN,
    )


first, second, third = patient(sagas.first), patient(sagas.second), patient(sagas.third)
item = Saga("item", input=Order).then(patient(sagas.pick)).then(patient(sagas.pack))

line = Saga("line", input=Order).then(first).then(second).then(third)
booking = Saga("booking", input=Order).then(first).then(patient(sagas.ledgered)).then(third)
sleeping = Saga("sleeping", input=Order).then(first).then(patient(sagas.sleeps)).then(third)
parcels = (
    Saga("parcels", input=Order)
    .then(patient(sagas.split))
    .map(item, over=sagas.items_of, name="items", max_concurrency=2, max_items=12)
    .then(patient(sagas.gather))
)

ALL: list[Saga[Order, Any]] = [line, booking, sleeping, parcels]

SCENE: dict[str, Any] = {
    "sagas": __name__,
    "lease_ttl": 1.5,
    "settings": {"start_grace": 4.0},
    # A message whose ack was lost comes again soon, and drops out.
    "conf": redelivered_after(5),
}
"""What `make_scene` is given for a fleet that is in trouble."""
