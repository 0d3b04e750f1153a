"""Redis forgets everything: queues, unacked messages, results and leases. SQL does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.records import EventName
from fencepost.testing import RedisServer, embedded_redis
from tests.acceptance.conftest import MakeScene
from tests.support import queues
from tests.support.apps import patient, sagas
from tests.support.scene import Scene
from tests.support.workload import Workload


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
    with make_scene("postgres", redis=own_redis, **patient.SCENE) as scene:
        scene.fleet.ready(2, concurrency=2)
        work = Workload(scene)
        work.await_midst()
        assert queues.messages(scene.redis)
        lose(own_redis)
        work.await_end()
        assert len(scene.fleet.alive) == 2


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
