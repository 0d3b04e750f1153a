"""What the suites of the limit stores share: owners that ask, and what ends their attempts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from fencepost.limits import Limit
from fencepost.ports import ExecutionStore, LimitStore
from fencepost.records import CheckpointKind, EventName, Execution, Phase
from tests.conformance.support import (
    FAILURE,
    LATER,
    NOW,
    Worker,
    started,
)

GPU = "gpu"
ONE = Limit(name=GPU, concurrency=1)
TWO = Limit(name=GPU, concurrency=2)
SIX = Limit(name=GPU, rate=6, per=timedelta(minutes=1))
SPACING = timedelta(seconds=10)
MOMENT = timedelta(seconds=1)
CAUSE = {"error_type": "Cancelled", "code": "execution.cancelled", "message": "", "details": {}}

Ends = Callable[[Worker], object]


def ask(
    limits: LimitStore, worker: Worker, limit: Limit = ONE, resource: str = GPU
) -> timedelta | None:
    """As an owner asks before it runs a body."""
    return limits.take(
        worker.execution_id,
        resource,
        limit,
        head=worker.head,
        attempt=worker.execution.attempt,
    )


def wait_of(limits: LimitStore, worker: Worker, limit: Limit) -> timedelta:
    """How long one has to wait that has been given a start."""
    wait = ask(limits, worker, limit)
    assert wait is not None
    return wait


def may_begin(limits: LimitStore, worker: Worker, limit: Limit = ONE, resource: str = GPU) -> bool:
    return ask(limits, worker, limit, resource) == NOW


def several(store: ExecutionStore, count: int) -> list[Worker]:
    return [started(store) for _ in range(count)]


def in_line(
    store: ExecutionStore, limits: LimitStore, count: int, limit: Limit = ONE
) -> list[Worker]:
    """Owners that have asked one after the other."""
    workers = several(store, count)
    for worker in workers:
        ask(limits, worker, limit)
    return workers


def hand_back(worker: Worker) -> None:
    worker.store.hand_back(worker.token(), LATER)


def again(worker: Worker) -> Worker:
    """The next owner of the same execution."""
    return Worker.take(worker.store, worker.execution_id)


def served(limits: LimitStore, limit: Limit = ONE) -> list[object]:
    return [execution.execution_id for execution in limits.serve(GPU, limit)]


def ids(*workers: Worker) -> list[object]:
    return [worker.execution_id for worker in workers]


def fails_an_attempt(worker: Worker) -> None:
    worker.store.record_attempt(worker.token(), 1, FAILURE, LATER)


def is_parked(worker: Worker) -> None:
    worker.store.park(worker.token(), "in doubt", None)


def is_turned_back(worker: Worker) -> Execution:
    return worker.store.turn_back(worker.execution_id, CAUSE, EventName.CANCELLED, {})


def begins_to_undo(worker: Worker) -> None:
    worker.commit(
        "compensation",
        FAILURE,
        kind=CheckpointKind.COMPENSATING,
        phase=Phase.COMPENSATING,
        raise_epochs=True,
    )
    worker.epoch += 1


ENDS: dict[str, Ends] = {
    "commit": lambda worker: worker.commit(),
    "end": lambda worker: worker.finish(),
    "wait": lambda worker: worker.waits(wake_in=LATER),
    "failed attempt": fails_an_attempt,
    "parking": is_parked,
    "turning back": is_turned_back,
    "undoing": begins_to_undo,
}
