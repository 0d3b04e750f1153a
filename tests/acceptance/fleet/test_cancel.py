"""Cancelled while the whole fleet is down: the work never runs, what had been done is undone."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import ANY
from uuid import UUID

import pytest
from typer.testing import CliRunner

from fencepost import Status
from fencepost.cli.app import app
from fencepost.records import EventName
from tests.acceptance.fleet.conftest import VerifiedScene
from tests.support.apps import cancelled
from tests.support.apps.sagas import Order
from tests.support.scene import Scene

WHY = "the customer has moved away"
CANCELLED = "execution.cancelled"


@pytest.fixture(params=["postgres", "sqlite"])
def scene(request: pytest.FixtureRequest, verified_scene: VerifiedScene) -> Iterator[Scene]:
    with verified_scene(request.param, cancelled.__name__) as scene:
        yield scene


def test_with_the_whole_fleet_down(scene: Scene) -> None:
    """Four executions share one fleet and its loss, because workers take long to start."""
    scene.fleet.ready(2, concurrency=2)
    # Nobody else dies of these plans: each process that comes there waits, and is killed there.
    inside = [
        scene.fleet.arm("ship.inside", "pause", label="order"),
        scene.fleet.arm("ship.inside", "pause", label="delivery", index="1"),
        scene.fleet.arm("ship.inside", "pause", label="delivery", index="2"),
        scene.fleet.arm("look.inside", "pause", label="survey"),
    ]
    order = scene.start(cancelled.order, label="order")
    survey = scene.fp.start(cancelled.survey, Order(label="survey"))
    delivery = scene.start(cancelled.delivery, label="delivery", count=5)
    for fault in inside:
        fault.victim()
    statuses = [child.status for child in scene.children(delivery.execution_id)]
    assert statuses == [Status.SUCCEEDED, *[Status.ACTIVE] * 2, *[Status.QUEUED] * 2]
    for worker in scene.fleet.alive:
        worker.kill()
    scene.fleet.disarm()
    never = scene.start(cancelled.order, label="never")
    handles = [order, survey, delivery, never]
    before = {handle.execution_id: scene.noted(handle.execution_id) for handle in handles}

    for handle in handles:
        _cancel(scene, handle.execution_id)
    scene.fleet.ready(2, concurrency=2)
    outcomes = [scene.wait(handle) for handle in handles]
    assert [outcome.status for outcome in outcomes] == [
        Status.COMPENSATED,
        Status.FAILED,
        Status.COMPENSATED,
        Status.FAILED,
    ]
    for handle, outcome in zip(handles, outcomes, strict=True):
        assert outcome.error["code"] == CANCELLED
        (event,) = scene.events(handle.execution_id, EventName.CANCELLED)
        assert event.details["why"] == WHY
        scene.assert_one_line(handle.execution_id)
    since = {
        execution_id: scene.noted(execution_id)[len(noted) :]
        for execution_id, noted in before.items()
    }
    # What had been completed is undone, newest first; the step in hand and those after it never
    # ran again.
    assert _steps(since[order.execution_id]) == ["pack", "charge", "reserve"]
    assert {what for _, what, _ in since[order.execution_id]} == {"undone"}
    assert since[survey.execution_id] == []
    assert scene.noted(never.execution_id) == []
    assert [c.kind for c in scene.chain(never.execution_id)] == ["start", "compensating"]
    assert since[delivery.execution_id] == [("reserve", "undone", ANY)]
    _assert_children_undone(scene, delivery.execution_id)


def _assert_children_undone(scene: Scene, parent_id: UUID) -> None:
    """The one that was completed, the two in the middle, and the two that had not begun."""
    done, *inside, fourth, fifth = [child.execution_id for child in scene.children(parent_id)]
    assert _steps(scene.noted(done, "undone")) == ["ship", "pack"]
    for child_id in inside:
        told = [(step, what) for step, what, _ in scene.noted(child_id)]
        assert told == [("pack", "ran"), ("ship", "ran"), ("pack", "undone")]
    for child_id in (fourth, fifth):
        assert scene.noted(child_id) == []
    for child in scene.children(parent_id):
        assert child.status is Status.COMPENSATED
        scene.assert_one_line(child.execution_id)


def _steps(noted: list[tuple[str, str, int]]) -> list[str]:
    return [step for step, _, _ in noted]


def _cancel(scene: Scene, execution_id: UUID) -> None:
    database = ("--database-url", scene.database_url)
    told = CliRunner().invoke(app, ["cancel", str(execution_id), "--why", WHY, *database])
    assert told.exit_code == 0, told.output
