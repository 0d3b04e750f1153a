"""Of those that wait, the one with the highest priority is begun first."""

from __future__ import annotations

from datetime import datetime

import pytest

from fencepost import Handle
from tests.acceptance.fleet.conftest import VerifiedScene
from tests.support.apps import placement
from tests.support.apps.sagas import Order
from tests.support.scene import Scene

# From outside of a queue's own order: the most urgent ones come last.
PRIORITIES = [0, 5, 0, 5, 9, 9]
BEGUN = [9, 9, 5, 5, 0, 0]
WAITING = range(1, 1 + len(PRIORITIES))


@pytest.mark.parametrize("lost", [False, True], ids=["sent", "sent-again"])
@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_the_higher_priority_goes_first(
    verified_scene: VerifiedScene, kind: str, *, lost: bool
) -> None:
    settings = {"start_grace": 1.0}
    with verified_scene(kind, placement.__name__, settings=settings) as scene:
        scene.fleet.ready()
        scene.gates.shut("serve")
        busy = _start(scene, 0, priority=0)
        scene.fleet.wait_for(lambda: scene.runs(busy.execution_id, "serve"), 10, "a busy worker")
        waiting = [_start(scene, n, priority=p) for n, p in zip(WAITING, PRIORITIES, strict=True)]
        if lost:
            _lose_all_messages(scene)
        scene.fleet.wait_for(lambda: scene.in_queues() >= len(waiting), 20, "all messages")
        scene.gates.open("serve")
        for handle in (busy, *waiting):
            scene.succeeds(handle)
        priorities = {
            handle.execution_id: scene.row(handle.execution_id).priority for handle in waiting
        }
        begun = sorted(waiting, key=lambda handle: _completed_at(scene, handle))
        assert [priorities[handle.execution_id] for handle in begun] == BEGUN


def _start(scene: Scene, index: int, *, priority: int) -> Handle[int]:
    return scene.fp.start(placement.errand, Order(index=index), priority=priority)


def _lose_all_messages(scene: Scene) -> None:
    for queue in list(scene.redis.scan_iter(_type="list")):
        scene.redis.delete(queue)
    assert scene.in_queues() == 0


def _completed_at(scene: Scene, handle: Handle[int]) -> datetime:
    return scene.chain(handle.execution_id)[-1].created_at
