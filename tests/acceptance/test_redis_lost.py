"""Redis forgets everything: queues, unacked messages, results and leases. SQL does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import Handle, Status
from fencepost.records import CheckpointKind, EventName
from fencepost.testing import RedisServer, embedded_redis
from tests.acceptance.conftest import MakeScene
from tests.support import queues
from tests.support.apps import sagas
from tests.support.scene import Scene

LINES, BOOKINGS, PARCELS, ITEMS = 12, 24, 4, 5
ALL = LINES + BOOKINGS + PARCELS
PATIENCE = 45.0


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """One that may be flushed and killed."""
    with embedded_redis(tmp_path / "redis") as server:
        yield server


def flush(server: RedisServer) -> None:
    server.command("FLUSHALL")


def kill_and_start_empty(server: RedisServer) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("lose", [flush, kill_and_start_empty])
def test_every_execution_still_ends_once(
    make_scene: MakeScene, own_redis: RedisServer, lose: Callable[[RedisServer], None]
) -> None:
    grace = {"start_grace": 4.0}
    with make_scene("postgres", redis=own_redis, lease_ttl=1.5, settings=grace) as scene:
        scene.fleet.ready(2, concurrency=2)
        started: list[Handle[Any]] = [
            *(scene.start(sagas.sleeping, label=f"l{n}", seconds=0.2) for n in range(LINES)),
            *(scene.start(sagas.parcels, label=f"p{n}", count=ITEMS) for n in range(PARCELS)),
            *(scene.start(sagas.booking, label=f"b{n}") for n in range(BOOKINGS)),
        ]
        # In mid-flight: some have ended, some run, some wait for children, some are queued.
        scene.fleet.wait_for(lambda: ended(scene, started) >= 6, 30, "the first to end")
        assert queues.messages(scene.redis)
        assert ended(scene, started) < ALL
        lose(own_redis)
        scene.fleet.wait_for(lambda: ended(scene, started) == ALL, PATIENCE, "all to end")
        for handle in started:
            check_once(scene, handle)
        assert len(scene.fleet.alive) == 2


def ended(scene: Scene, handles: list[Handle[Any]]) -> int:
    return sum(handle.status().ended for handle in handles)


def check_once(scene: Scene, handle: Handle[Any]) -> None:
    execution_id = handle.execution_id
    row = scene.row(execution_id)
    assert row.status is Status.SUCCEEDED, scene.story(execution_id)
    scene.assert_one_line(execution_id)
    noted = [(step, what) for step, what, _ in scene.noted(execution_id)]
    if row.saga == "parcels":
        kinds = [c.kind for c in scene.chain(execution_id)]
        assert kinds.count(CheckpointKind.JOIN) == 1
        children = scene.children(execution_id)
        assert [child.result for child in children] == list(range(ITEMS))
        for child in children:
            scene.assert_one_line(child.execution_id)
            assert len(scene.noted(child.execution_id, "booked")) == 1
        return
    # In the execution's own transaction, or deduplicated by the sink: landed once.
    assert noted.count(("third", "applied")) == 1
    assert noted.count(("ledgered", "booked")) == (row.saga == "booking")
    # A plain body may run again where its owner was cut off, and is then recorded once.
    steps = [c.step for c in scene.chain(execution_id)]
    assert len(steps) == len(set(steps)) == 4


def forget_leases(scene: Scene) -> None:
    scene.redis.delete(*scene.redis.keys("fencepost:*"))


def test_a_vanished_lease_is_put_back_by_its_owner(postgres_scene: Scene) -> None:
    scene = postgres_scene
    leases = scene.fp.engine.leases
    fault = scene.fleet.arm("second.inside", "pause", label="vanished")
    handle = scene.start(sagas.line, label="vanished")
    fault.victim()
    execution_id = handle.execution_id
    (held,) = leases.state([execution_id])
    forget_leases(scene)
    (again,) = scene.fleet.wait_for(
        lambda: [state for state in leases.state([execution_id]) if state], 10, "the lease"
    )
    assert held is not None
    assert (again.owner, again.epoch) == (held.owner, held.epoch)
    fault.go()
    assert scene.succeeds(handle) == "vanished"
    assert scene.row(execution_id).epoch == 1
    assert scene.runs(execution_id, "second") == 1


def test_after_amnesia_the_epoch_of_the_row_is_written_back(postgres_scene: Scene) -> None:
    """The leases have forgotten the epoch and propose 1 again; SQL alone finds the silent owner."""
    scene = postgres_scene
    fault = scene.fleet.arm("second.inside", "freeze", label="amnesia")
    handle = scene.start(sagas.line, label="amnesia")
    victim = fault.victim()
    execution_id = handle.execution_id
    forget_leases(scene)
    successor = scene.fleet.arm("second.inside", "pause", label="amnesia")
    assert successor.victim() is not victim
    (state,) = scene.fp.engine.leases.state([execution_id])
    row = scene.row(execution_id)
    assert state is not None
    assert (state.epoch, state.owner) == (row.epoch, row.owner)
    assert row.epoch == 2
    successor.go()
    assert scene.succeeds(handle) == "amnesia"
    victim.thaw()
    scene.fleet.wait_for(
        lambda: scene.events(execution_id, EventName.LEASE_LOST), 10, "the zombie's refusal"
    )
    assert len(scene.noted(execution_id, "applied")) == 1
    scene.assert_one_line(execution_id)
