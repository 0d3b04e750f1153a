"""Workers whose clocks are wrong, or are set while they work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.records import CheckpointKind, EventName
from tests.acceptance.conftest import MakeScene
from tests.support.apps import clocked
from tests.support.scene import Scene

HOUR = 3600
LOADED = 10.0
"""Seconds that a loaded machine may take on top: an hour is what would be wrong."""


@pytest.fixture(scope="module")
def clocked_scene(make_scene: MakeScene) -> Iterator[Scene]:
    """Three workers: one is right, one an hour slow, one an hour fast."""
    how: dict[str, Any] = {"lease_ttl": 1.5, "sagas": clocked.__name__}
    with make_scene("postgres", settings={"start_grace": 4.0}, **how) as scene:
        for ahead in (0, -HOUR, HOUR):
            scene.fleet.start(1, pool="threads", SAMPLE_CLOCK_AHEAD=str(ahead))
        for worker in scene.fleet.alive:
            worker.await_ready()
        yield scene


@pytest.mark.parametrize("number", range(3))
def test_a_lease_lasts_as_long_as_ever(clocked_scene: Scene, number: int) -> None:
    """Whichever is lost: a slow one takes over from a fast one, and the other way round."""
    scene = clocked_scene
    lost = scene.fleet.workers[number]
    others = [worker for worker in scene.fleet.workers if worker is not lost]
    label = f"lost {number}"
    fault = scene.fleet.arm("second.inside", "freeze", label=label)
    # Nobody else is there to begin it.
    for other in others:
        other.freeze()
    handle = scene.start(clocked.line, label=label)
    assert fault.victim() is lost
    frozen_at = time.time()
    for other in others:
        other.thaw()
    assert scene.succeeds(handle, 30) == label
    execution_id = handle.execution_id
    (recovered,) = scene.events(execution_id, EventName.RECOVERED)
    assert recovered.at is not None
    assert recovered.at.timestamp() - frozen_at < scene.lease_ttl + LOADED
    lost.thaw()
    ignored = f"[{execution_id}] ignored"
    scene.fleet.wait_for(lambda: ignored in lost.log(), 20, "the zombie to drop out")
    assert scene.row(execution_id).epoch == 2
    scene.assert_one_line(execution_id)
    scene.assert_verified()


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_clock_that_is_set_while_a_step_runs(clocked_scene: Scene, hours: int) -> None:
    """The owner renews its lease all the time, and keeps it."""
    scene = clocked_scene
    seconds = 2 * scene.lease_ttl
    handle = scene.start(clocked.stepped, label="set", count=hours, seconds=seconds)
    assert scene.succeeds(handle, 30) == "set"
    execution_id = handle.execution_id
    assert scene.row(execution_id).epoch == 1, scene.story(execution_id)
    steps = [c for c in scene.chain(execution_id) if c.kind is CheckpointKind.STEP]
    took = (steps[1].created_at - steps[0].created_at).total_seconds()
    assert seconds <= took < seconds + LOADED


def test_a_timer_is_due_by_the_databases_clock(clocked_scene: Scene) -> None:
    scene = clocked_scene
    handles = [scene.start(clocked.napping, label=f"nap {number}") for number in range(6)]
    for handle in handles:
        scene.succeeds(handle, 30)
        before, _nap, after = (c.created_at for c in scene.chain(handle.execution_id)[-3:])
        slept = (after - before).total_seconds()
        assert clocked.NAP.total_seconds() <= slept < clocked.NAP.total_seconds() + LOADED
    scene.assert_verified()
