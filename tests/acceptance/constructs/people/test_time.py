"""What ends by time does so once, and on time, though the worker that began it was killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from fencepost import Saga, Status
from fencepost.records import CheckpointKind, EventName
from tests.acceptance.constructs.conftest import WORKERS
from tests.acceptance.constructs.kills import killed
from tests.acceptance.constructs.people.story import ends, only, ran, undone
from tests.support.apps import people
from tests.support.apps.sagas import Order
from tests.support.scene import Scene

SAGAS = people

WAIT, WOKEN = CheckpointKind.WAIT, CheckpointKind.WOKEN
LATEST = 1.0
"""Seconds."""

Seconds = Callable[[], float]
# The constructs' scenes have a visibility timeout of two seconds.
LONGER_THAN_VISIBLE = 5.0


TRIES = 3
"""Of a timer, until one is on time: workers that get no processor for a second can't be."""


def assert_on_time(scene: Scene, saga: Saga[Order, Any], step: str, seconds: Seconds) -> None:
    """Each try is woken once, by time and never early; one of them within a second."""
    for number in range(1, TRIES + 1):
        late = lateness(scene, saga, step, seconds())
        database = "postgresql" if scene.postgres else "sqlite"
        print(f"{saga.name} on {database}, try {number}: woken {late:+.3f} s after it was due")
        if late <= LATEST:
            return
        scene.refill(WORKERS, ready=WORKERS)
    raise AssertionError(f"late in each of {TRIES} tries: see above")


def lateness(scene: Scene, saga: Saga[Order, Any], step: str, seconds: float) -> float:
    """Kill the worker that sets a timer; how late, by what is stored, another one was woken.

    It is killed before it gives the lease up. By SQL, nobody owns what waits: whoever is woken
    takes nobody over.
    """
    match = {"step": step, "kind": "wait"}
    handle = killed(scene, saga, "commit.after", match, label=step, seconds=seconds)
    ends(scene, handle, Status.SUCCEEDED, recovered=False)
    execution_id = handle.execution_id
    wait, woken = (only(scene, execution_id, kind, step) for kind in (WAIT, WOKEN))
    assert woken.result["by"] == "time"
    assert woken.owner != wait.owner
    assert ran(scene, execution_id) == {"hold": 1, "after": 1}
    if wait.result["until"] is None:
        due = wait.created_at + timedelta(seconds=wait.result["seconds"])
    else:
        due = datetime.fromisoformat(wait.result["until"])
    late = (woken.created_at - due).total_seconds()
    assert late >= 0, scene.story(execution_id)
    return late


def test_sleep(scene: Scene) -> None:
    assert_on_time(scene, people.nap, "nap", lambda: 3.0)


def test_a_timer_longer_than_the_visibility_timeout(scene: Scene) -> None:
    """The dead worker's message comes back before the time does, and wakes nobody."""
    assert_on_time(scene, people.nap, "nap", lambda: LONGER_THAN_VISIBLE)


def test_until(scene: Scene) -> None:
    assert_on_time(scene, people.alarm, "morning", lambda: time.time() + 4)


def test_who_is_woken_is_killed(scene: Scene) -> None:
    """The time has come, and isn't on record yet: the next one sees that it has."""
    match = {"step": "nap", "kind": "woken"}
    handle = killed(scene, people.nap, "commit.before", match, label="woken", seconds=0.5)
    ends(scene, handle, Status.SUCCEEDED)
    only(scene, handle.execution_id, WOKEN, "nap")
    assert ran(scene, handle.execution_id) == {"hold": 1, "after": 1}


def test_the_deadline_of_a_saga(scene: Scene) -> None:
    """It passes while the second worker is in the step that the first was killed in."""
    scene.gates.shut("linger")
    handle = killed(scene, people.hurried, "linger.inside", label="late")
    execution_id = handle.execution_id
    scene.fleet.wait_for(
        lambda: scene.events(execution_id, EventName.DEADLINE_PASSED), 40, "the deadline"
    )
    scene.gates.open("linger")
    outcome = ends(scene, handle, Status.COMPENSATED)
    assert outcome.error["code"] == "execution.deadline-passed"
    (passed,) = scene.events(execution_id, EventName.DEADLINE_PASSED)
    due = scene.row(execution_id).deadline_at
    assert due is not None
    assert passed.at is not None
    assert passed.at >= due
    assert undone(scene, execution_id) == ["hold"]
    assert ran(scene, execution_id, "undone") == {"hold": 1}
    assert ran(scene, execution_id)["linger"] <= 2


def test_the_deadline_of_a_saga_whose_undo_is_killed(scene: Scene) -> None:
    scene.gates.shut("linger")
    fault = scene.fleet.arm("hold.undoing", "kill", label="undo")
    handle = scene.start(people.hurried, label="undo")
    execution_id = handle.execution_id
    scene.fleet.wait_for(
        lambda: scene.events(execution_id, EventName.DEADLINE_PASSED), 40, "the deadline"
    )
    scene.gates.open("linger")
    fault.victim().wait()
    outcome = ends(scene, handle, Status.COMPENSATED)
    assert outcome.error["code"] == "execution.deadline-passed"
    assert undone(scene, execution_id) == ["hold"]
    assert ran(scene, execution_id, "undone") == {"hold": 2}
