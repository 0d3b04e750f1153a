"""Two versions of the code at once: what one worker doesn't know, it leaves to the other."""

from __future__ import annotations

import pytest

from fencepost import Handle
from fencepost.engine.core import LEFT_TO_OTHERS
from fencepost.records import CheckpointKind, EventName
from tests.acceptance.fleet.conftest import VerifiedScene
from tests.support.apps import versions_new, versions_old
from tests.support.apps.sagas import Order
from tests.support.apps.versions import NEW, OLD, REWORKED
from tests.support.fleet import Worker
from tests.support.scene import Scene

EACH = 10
SECONDS = 40.0


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_each_version_finds_its_worker(verified_scene: VerifiedScene, kind: str) -> None:
    with verified_scene(kind, versions_old.__name__) as scene:
        (old,) = scene.fleet.start(concurrency=2)
        (new,) = scene.fleet.start(concurrency=2, SAMPLE_SAGAS=versions_new.__name__)
        for worker in (old, new):
            worker.await_ready()
        lines = (OLD[REWORKED].line, NEW[REWORKED].line)
        assert lines[0].name == lines[1].name
        assert lines[0].version != lines[1].version
        # Each label is an open gate.
        handles = [
            [scene.fp.start(line, Order(label=f"{n}")) for line in lines] for n in range(EACH)
        ]
        took = []
        for n, (of_old, of_new) in enumerate(handles):
            for handle, worker in ((of_old, old), (of_new, new)):
                assert scene.succeeds(handle, SECONDS) == f"{n}"
                took.append(_seconds(scene, handle))
                _assert_all_by(scene, handle, worker)
        took.sort()
        print(f"\n{kind}: {took[len(took) // 2]:.1f} s in the middle, {took[-1]:.1f} s at most")
        # Most aren't left to the next look of the other worker's reaper.
        assert took[len(took) // 2] < LEFT_TO_OTHERS.total_seconds()


def _seconds(scene: Scene, handle: Handle[str]) -> float:
    row = scene.row(handle.execution_id)
    assert row.ended_at is not None
    return (row.ended_at - row.created_at).total_seconds()


def _assert_all_by(scene: Scene, handle: Handle[str], worker: Worker) -> None:
    """Nobody else touched it; and nobody said twice that it could not."""
    scene.assert_one_line(handle.execution_id)
    completed = [c for c in scene.chain(handle.execution_id) if c.kind is CheckpointKind.STEP]
    assert {scene.worker_of(entry.owner) for entry in completed} == {worker}
    assert scene.row(handle.execution_id).epoch == 1
    unknown = scene.events(handle.execution_id, EventName.VERSION_UNKNOWN)
    owners = [event.owner for event in unknown]
    assert len(owners) == len(set(owners))
    assert all(scene.worker_of(owner) is not worker for owner in owners)
