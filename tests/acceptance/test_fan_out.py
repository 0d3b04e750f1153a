"""Fan-outs: caps, limits, failures, and workers lost in the middle."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime

import pytest

from fencepost import Status
from fencepost.records import CheckpointKind, EventName
from tests.acceptance.conftest import MakeScene
from tests.support.apps import sagas
from tests.support.scene import Scene

CAP = 2


def test_no_items(scene: Scene) -> None:
    handle = scene.start(sagas.parcels, label="none", count=0)
    assert scene.succeeds(handle) == 0
    execution_id = handle.execution_id
    kinds = [c.kind for c in scene.chain(execution_id)]
    assert kinds == ["start", "step", "fan-out", "join", "step"]
    assert scene.children(execution_id) == []
    assert scene.row(execution_id).epoch == 1


def test_too_many_items(scene: Scene) -> None:
    handle = scene.start(sagas.parcels, label="many", count=13)
    outcome = scene.wait(handle)
    execution_id = handle.execution_id
    assert outcome.status is Status.FAILED
    assert outcome.error["message"] == "'items' has 13 items, and max_items is 12"
    assert outcome.error["details"] == {"step": "items", "items": 13, "max_items": 12}
    assert scene.children(execution_id) == []
    scene.assert_one_line(execution_id)


def test_a_failed_child_has_its_siblings_undone(scene: Scene) -> None:
    handle = scene.start(sagas.parcels, label="one fails", count=4, failing=[2])
    outcome = scene.wait(handle)
    parent_id = handle.execution_id
    assert outcome.status is Status.COMPENSATED, scene.story(parent_id)
    assert outcome.error["code"] == "saga.children-failed"
    (failed,) = outcome.error["details"]["failed"]
    children = scene.children(parent_id)
    assert failed["execution_id"] == str(children[2].execution_id)
    assert failed["error"]["code"] == "order.not-shipped"
    assert [child.status for child in children] == [Status.COMPENSATED] * 4
    for child in children:
        # What each had picked was put back, once; what the failed one packed never was.
        done = [(step, what) for step, what, _ in scene.noted(child.execution_id)]
        packed = [("pack", "booked")] * (child.child_index != 2)
        assert done == [("pick", "ran"), *packed, ("pick", "undone")]
        scene.assert_one_line(child.execution_id)
    kinds = [c.kind for c in scene.chain(parent_id)]
    assert kinds == ["start", "step", "fan-out", "compensating", "undo-fan-out", "undo"]
    # The siblings were fenced before anything was undone.
    entered = next(e for e in scene.events(parent_id) if e.name == EventName.COMPENSATING)
    for child in children[:2]:
        raised = scene.events(child.execution_id, EventName.EPOCH_RAISED)
        undo = scene.chain(child.execution_id)[-1]
        # By its parent first; and by itself, on entering its own compensation.
        by = [event.details["by"] for event in raised]
        assert by == [str(parent_id), str(child.execution_id)]
        assert undo.kind is CheckpointKind.UNDO
        assert undo.epoch > raised[0].epoch
        assert entered.at is not None
        assert entered.at < undo.created_at
    assert scene.runs(parent_id, "gather") == 0
    scene.assert_one_line(parent_id)


@pytest.fixture
def wide_scene(make_scene: MakeScene) -> Iterator[Scene]:
    """Two workers with room for four children each: nothing but the cap holds them back."""
    with make_scene("postgres", lease_ttl=1.5) as scene:
        scene.fleet.ready(2, concurrency=4)
        yield scene


def most_at_once(children: list[tuple[datetime, datetime]]) -> int:
    """The greatest number of children that had begun and not ended at any one time."""
    changes = [(begin, 1) for begin, _ in children] + [(end, -1) for _, end in children]
    # An end makes room for a beginning at the same instant.
    running = itertools.accumulate(change for _, change in sorted(changes))
    return max(running)


def test_the_cap_holds_across_the_fleet_and_through_a_kill(wide_scene: Scene) -> None:
    scene = wide_scene
    fault = scene.fleet.arm("pick.inside", "kill", index="1")
    handle = scene.start(sagas.parcels, label="capped", count=6, seconds=0.3)
    victim = fault.victim()
    assert scene.succeeds(handle) == sum(range(6))
    spans = []
    lost = 0
    for child in scene.children(handle.execution_id):
        acquired = scene.events(child.execution_id, EventName.LEASE_ACQUIRED)
        assert acquired[0].at is not None
        assert child.ended_at is not None
        spans.append((acquired[0].at, child.ended_at))
        lost += sum(
            scene.worker_of(event.details["from_owner"]) is victim
            for event in scene.events(child.execution_id, EventName.RECOVERED)
        )
        scene.assert_one_line(child.execution_id)
    assert lost >= 1
    # Stored facts: a child holds its place from its first owner to its end, dead owners included.
    assert most_at_once(spans) == CAP
    children = [child.execution_id for child in scene.children(handle.execution_id)]
    assert len(scene.noted(children, "booked")) == 6
