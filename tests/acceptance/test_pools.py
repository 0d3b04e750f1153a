"""Celery's pools: what the protocol needs of each, and what each can keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fencepost import Status
from fencepost.records import EventName
from tests.acceptance.conftest import MakeScene
from tests.support.apps import sagas
from tests.support.scene import Scene

LEASE_TTL = 1.5
# A heartbeat that stood still for this long would have lost the lease twice over.
LONG = 3.5


@dataclass
class Pooled:
    """A scene whose workers have a certain pool."""

    pool: str
    concurrency: int
    scene: Scene

    def refill(self) -> None:
        """Two workers that take messages."""
        fleet = self.scene.fleet
        fleet.disarm()
        fleet.ready(2 - len(fleet.alive), pool=self.pool, concurrency=self.concurrency)


POOLS = {"prefork": 2, "threads": 4, "solo": 1, "gevent": 10}


@pytest.fixture(scope="module", params=POOLS)
def pooled(request: pytest.FixtureRequest, make_scene: MakeScene) -> Iterator[Pooled]:
    limit = {"max_recoveries": 1}
    with make_scene("postgres", lease_ttl=LEASE_TTL, settings=limit) as scene:
        yield Pooled(request.param, POOLS[request.param], scene)


@pytest.fixture
def fleet(pooled: Pooled) -> Pooled:
    pooled.refill()
    return pooled


def test_leases_outlive_their_ttl_while_steps_are_slow(fleet: Pooled) -> None:
    scene = fleet.scene
    slow = [("sleeps", scene.start(sagas.sleeping, label="sleeps", seconds=LONG))]
    if fleet.pool != "gevent":
        slow.append(("blocks", scene.start(sagas.blocking, label="blocks", seconds=LONG)))
    parcels = scene.start(sagas.parcels, label="beside", count=3)
    for step, handle in slow:
        assert scene.succeeds(handle) == step
        assert scene.row(handle.execution_id).epoch == 1
        assert scene.runs(handle.execution_id, step) == 1
        assert not scene.events(handle.execution_id, EventName.RECOVERED)
        scene.assert_one_line(handle.execution_id)
    assert scene.succeeds(parcels) == 3
    if fleet.pool == "gevent":
        check_a_blocked_hub(scene)


def check_a_blocked_hub(scene: Scene) -> None:
    """All greenlets share the blocked thread, the heartbeat too: the lease lapses, and whoever
    takes over is blocked in the same way. Nothing is doubled; the work is parked, with a reason."""
    handle = scene.start(sagas.blocking, label="blocks", seconds=LONG)
    assert scene.wait(handle, 30).status is Status.PARKED
    execution_id = handle.execution_id
    reason = scene.row(execution_id).parked_reason
    assert reason == "taken over 2 times without a new checkpoint (limit 1)"
    ignored = f"[{execution_id}] ignored"
    scene.fleet.wait_for(lambda: scene.logged(ignored) == 3, 20, "all three to drop out")
    refused = scene.events(execution_id, EventName.LEASE_LOST)
    assert [event.epoch for event in refused] == [1, 2]
    assert [c.step for c in scene.chain(execution_id)] == ["start", "first"]
    assert scene.runs(execution_id, "first") == 1
    assert scene.noted(execution_id, "applied") == []


def test_a_terminated_worker_hands_over(fleet: Pooled) -> None:
    scene = fleet.scene
    fault = scene.fleet.arm("second.inside", "pause", label="drained")
    handle = scene.start(sagas.line, label="drained")
    leaving = fault.victim()
    leaving.terminate()
    scene.fleet.wait_for(
        lambda: "worker: Warm shutdown" in leaving.log(), 10, "the shutdown to begin"
    )
    fault.go()
    assert scene.succeeds(handle) == "drained"
    assert leaving.wait() == 0
    execution_id = handle.execution_id
    _, _, second, third = scene.chain(execution_id)
    assert (second.epoch, third.epoch) == (1, 2)
    assert scene.worker_of(second.owner) is leaving
    assert scene.worker_of(third.owner) is not leaving
    assert len(scene.events(execution_id, EventName.LEASE_RELEASED)) == 1
    assert not scene.events(execution_id, EventName.RECOVERED)
    assert scene.runs(execution_id, "second") == 1


def test_a_frozen_worker_is_taken_over_and_refused(fleet: Pooled) -> None:
    scene = fleet.scene
    fault = scene.fleet.arm("second.inside", "freeze", label="frozen")
    handle = scene.start(sagas.line, label="frozen")
    victim = fault.victim()
    assert scene.succeeds(handle) == "frozen"
    execution_id = handle.execution_id
    victim.thaw()
    scene.fleet.wait_for(
        lambda: scene.events(execution_id, EventName.LEASE_LOST), 10, "the zombie's refusal"
    )
    assert scene.row(execution_id).epoch == 2
    assert scene.runs(execution_id, "first") == 1
    assert len(scene.noted(execution_id, "applied")) == 1
    scene.assert_one_line(execution_id)
    victim.kill()
    # The other one serves alone.
    assert scene.succeeds(scene.start(sagas.booking, label="alone")) == "alone"
