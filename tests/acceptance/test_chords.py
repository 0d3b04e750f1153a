"""A fan-out joins once and promptly, whatever becomes of Celery's chord.

The chord's callback goes to a queue that no worker listens to, so each test decides what
becomes of it: lost, delivered, or delivered again and again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from fencepost import Handle, Status
from fencepost.records import CheckpointKind
from tests.acceptance.conftest import MakeScene
from tests.support import queues
from tests.support.apps import sagas
from tests.support.scene import Scene

PROMPTLY = 2.5
"""Seconds between the last child's end and the join: a sweep of the reaper, and a message."""

JOINS_APART = {"task_routes": {"fencepost.join": {"queue": "joins"}}}


@pytest.fixture(scope="module")
def scene_options() -> dict[str, Any]:
    return {"workers": 2, "conf": JOINS_APART}


@pytest.fixture
def chord_scene(make_scene: MakeScene) -> Iterator[Scene]:
    """Here no reaper looks into SQL: only the chord can wake a parent."""
    sweep = {"sweep_interval": 3600.0}
    with make_scene("postgres", workers=3, conf=JOINS_APART, settings=sweep) as scene:
        yield scene


def callbacks(scene: Scene, parent_id: UUID) -> list[str]:
    """The messages of a parent's chord callback, as they lie in their queue."""
    joins = queues.messages(scene.redis, "joins")
    return [m for m in joins if str(parent_id) in json.loads(m)["headers"]["argsrepr"]]


def deliver(scene: Scene, message: str, copies: int) -> None:
    """Put copies of a message where the workers listen."""
    for _ in range(copies):
        copy = json.loads(message)
        copy["properties"]["delivery_tag"] = str(uuid4())
        scene.redis.lpush("celery", json.dumps(copy))


def check_joined(scene: Scene, handle: Handle[Any], items: int) -> None:
    """Joined once, promptly after the last child's end, with every result in its place."""
    parent_id = handle.execution_id
    assert scene.succeeds(handle) == sum(range(items))
    children = scene.children(parent_id)
    assert [child.result for child in children] == list(range(items))
    joins = [c for c in scene.chain(parent_id) if c.kind is CheckpointKind.JOIN]
    assert len(joins) == 1
    assert joins[0].result == list(range(items))
    assert scene.runs(parent_id, "gather") == 1
    assert scene.row(parent_id).epoch == 2
    scene.assert_one_line(parent_id)
    ends = [child.ended_at for child in children if child.ended_at is not None]
    waited = (joins[0].created_at - max(ends)).total_seconds()
    assert waited < PROMPTLY, f"joined after {waited:.2f} s"


def ended(scene: Scene, parent_id: UUID, index: int) -> bool:
    return scene.children(parent_id)[index].status is Status.SUCCEEDED


def waits(scene: Scene, handle: Handle[Any]) -> bool:
    """Whether a fan-out has been committed and published."""
    return scene.row(handle.execution_id).status is Status.WAITING


def test_only_the_chord_wakes_the_parent(chord_scene: Scene) -> None:
    scene = chord_scene

    # Above the cap, a child's first message comes to nothing and it is dispatched again: as the
    # same part of the same chord, or the chord would never be complete.
    places = [
        scene.fleet.arm("pick.inside", "pause", label="capped", index=str(index))
        for index in (0, 1)
    ]
    handle = scene.start(sagas.parcels, label="capped", count=5)
    for fault in places:
        fault.victim()
    parent_id = handle.execution_id
    for child in scene.children(parent_id)[2:]:
        ignored = partial(scene.logged, f"[{child.execution_id}] ignored")
        scene.fleet.wait_for(ignored, 10, "the first message's end")
    for fault in places:
        fault.go()
    scene.fleet.wait_for(lambda: callbacks(scene, parent_id), 10, "the chord's callback")
    assert all(child.status is Status.SUCCEEDED for child in scene.children(parent_id))
    assert waits(scene, handle)
    (message,) = callbacks(scene, parent_id)
    deliver(scene, message, 1)
    assert scene.succeeds(handle) == 0 + 1 + 2 + 3 + 4

    # (c) A header task's copy raises Ignore while the other one runs.
    fault = scene.fleet.arm("pick.inside", "pause", label="ignored", index="0")
    handle = scene.start(sagas.parcels, label="ignored", count=2)
    parent_id = handle.execution_id
    owner = fault.victim()
    child_id = scene.children(parent_id)[0].execution_id
    copy_ended = f"[{child_id}] ignored"
    scene.dispatch_again(child_id)
    scene.fleet.wait_for(lambda: scene.logged(copy_ended), 10, "the copy to be ignored")
    assert copy_ended not in owner.log()
    fault.go()
    scene.fleet.wait_for(lambda: callbacks(scene, parent_id), 10, "the chord's callback")
    (message,) = callbacks(scene, parent_id)

    # (b) The callback comes three times.
    deliver(scene, message, 3)
    check_joined(scene, handle, 2)
    scene.fleet.wait_for(lambda: not queues.messages(scene.redis), 10, "an empty queue")
    assert scene.row(parent_id).epoch == 2


def test_the_callback_is_lost(postgres_scene: Scene) -> None:
    scene = postgres_scene
    handle = scene.start(sagas.parcels, label="lost", count=5)
    check_joined(scene, handle, 5)
    # It was sent, and nobody has ever seen it.
    parent_id = handle.execution_id
    scene.fleet.wait_for(lambda: callbacks(scene, parent_id), 10, "the callback")
    assert len(callbacks(scene, parent_id)) == 1


def test_the_callback_comes_late_and_often(postgres_scene: Scene) -> None:
    scene = postgres_scene
    handle = scene.start(sagas.parcels, label="often", count=2)
    check_joined(scene, handle, 2)
    parent_id = handle.execution_id
    chain = scene.chain(parent_id)
    (message,) = scene.fleet.wait_for(lambda: callbacks(scene, parent_id), 10, "the callback")
    deliver(scene, message, 5)
    joined = f"fencepost.join[{json.loads(message)['headers']['id']}] succeeded"
    scene.fleet.wait_for(lambda: scene.logged(joined) == 5, 10, "five callbacks")
    assert scene.chain(parent_id) == chain
    assert scene.row(parent_id).epoch == 2


def test_the_callback_fires_before_the_children_have_ended(postgres_scene: Scene) -> None:
    scene = postgres_scene
    handle = scene.start(sagas.parcels, label="before", count=1)
    check_joined(scene, handle, 1)
    (message,) = callbacks(scene, handle.execution_id)

    fault = scene.fleet.arm("pick.inside", "pause", label="early", index="0")
    handle = scene.start(sagas.parcels, label="early", count=2)
    fault.victim()
    parent_id = handle.execution_id
    # The first chord's callback, made out to the other parent.
    early = json.loads(message)
    early["body"] = _body_for(parent_id)
    deliver(scene, json.dumps(early), 2)
    too_early = f"execution {parent_id} is waiting"
    scene.fleet.wait_for(lambda: scene.logged(too_early), 10, "the parent to be looked at")
    assert waits(scene, handle)
    fault.go()
    scene.wait(handle)
    assert [c.kind for c in scene.chain(parent_id)].count(CheckpointKind.JOIN) == 1
    assert scene.runs(parent_id, "gather") == 1
    scene.assert_one_line(parent_id)


def _body_for(parent_id: UUID) -> str:
    body = json.dumps([[str(parent_id)], {}, {"callbacks": None, "errbacks": None}])
    return base64.b64encode(body.encode()).decode()


def test_the_result_keys_are_flushed_in_mid_flight(postgres_scene: Scene) -> None:
    scene = postgres_scene
    fault = scene.fleet.arm("pick.inside", "pause", label="flushed", index="0")
    handle = scene.start(sagas.parcels, label="flushed", count=3)
    fault.victim()
    parent_id = handle.execution_id
    scene.fleet.wait_for(
        lambda: ended(scene, parent_id, 1) and ended(scene, parent_id, 2), 10, "the others' end"
    )
    counted = scene.fleet.wait_for(
        lambda: scene.redis.keys("celery-taskset-meta-*.j"), 10, "the chord to have counted them"
    )
    assert counted
    scene.redis.delete(*scene.redis.keys("celery-task*"))
    fault.go()
    check_joined(scene, handle, 3)
    assert not callbacks(scene, parent_id)  # the chord has forgotten all


@pytest.mark.parametrize("action", ["kill", "freeze"])
def test_the_last_child_ends_and_its_worker_is_lost(postgres_scene: Scene, action: str) -> None:
    """Its end is in SQL, and Celery never hears of it: nobody counts the chord's last part."""
    scene = postgres_scene
    label = f"uncounted-{action}"
    fault = scene.fleet.arm("pick.inside", "pause", label=label, index="0")
    handle = scene.start(sagas.parcels, label=label, count=2)
    fault.victim()
    parent_id = handle.execution_id
    scene.fleet.wait_for(lambda: ended(scene, parent_id, 1), 10, "the other child")
    lost = scene.fleet.arm("transaction.after-commit", action, step="pack")
    fault.go()
    victim = lost.victim()
    check_joined(scene, handle, 2)
    assert not callbacks(scene, parent_id)
    if action == "freeze":
        victim.thaw()
        scene.fleet.wait_for(lambda: callbacks(scene, parent_id), 10, "the belated callback")
        deliver(scene, callbacks(scene, parent_id)[0], 2)
        scene.fleet.wait_for(lambda: not queues.messages(scene.redis), 10, "an empty queue")
        assert scene.row(parent_id).epoch == 2
