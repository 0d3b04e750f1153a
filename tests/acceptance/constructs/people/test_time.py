"""What ends by time does so once, and on time, though the worker that began it was killed."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from uuid import UUID

from fencepost import Status
from fencepost.records import CheckpointKind, EventName
from tests.acceptance.constructs.people.story import ends, killed, only, ran, undone
from tests.support.apps import people
from tests.support.scene import Scene

SAGAS = people

WAIT, WOKEN = CheckpointKind.WAIT, CheckpointKind.WOKEN
LATEST = timedelta(seconds=1)
# The constructs' scenes have a visibility timeout of two seconds.
LONGER_THAN_VISIBLE = 5.0


def assert_on_time(what: str, scene: Scene, execution_id: UUID, step: str, due: datetime) -> None:
    """Woken once, by time, within a second of the moment that is on record."""
    woken = only(scene, execution_id, WOKEN, step)
    assert woken.result["by"] == "time"
    assert woken.owner != only(scene, execution_id, WAIT, step).owner
    late = woken.created_at - due
    database = "postgresql" if scene.postgres else "sqlite"
    print(f"{what} on {database}: woken {late.total_seconds():+.3f} s after it was due")
    assert timedelta(0) <= late <= LATEST, scene.story(execution_id)


def test_sleep(scene: Scene) -> None:
    """The worker that set the timer is killed before it gives the lease up.

    By SQL, nobody owns what waits: whoever is woken takes nobody over.
    """
    match = {"step": "nap", "kind": "wait"}
    handle = killed(scene, people.nap, "commit.after", match, label="nap", seconds=3)
    ends(scene, handle, Status.SUCCEEDED, recovered=False)
    execution_id = handle.execution_id
    set_at = only(scene, execution_id, WAIT, "nap").created_at
    assert_on_time("sleep", scene, execution_id, "nap", set_at + timedelta(seconds=3))
    assert ran(scene, execution_id) == {"hold": 1, "after": 1}


def test_a_timer_longer_than_the_visibility_timeout(scene: Scene) -> None:
    """The dead worker's message comes back before the time does, and wakes nobody."""
    match = {"step": "nap", "kind": "wait"}
    seconds = LONGER_THAN_VISIBLE
    handle = killed(scene, people.nap, "commit.after", match, label="long", seconds=seconds)
    ends(scene, handle, Status.SUCCEEDED, recovered=False)
    execution_id = handle.execution_id
    set_at = only(scene, execution_id, WAIT, "nap").created_at
    due = set_at + timedelta(seconds=seconds)
    assert_on_time("long sleep", scene, execution_id, "nap", due)
    assert ran(scene, execution_id) == {"hold": 1, "after": 1}


def test_until(scene: Scene) -> None:
    match = {"step": "morning", "kind": "wait"}
    at = time.time() + 4
    handle = killed(scene, people.alarm, "commit.after", match, label="alarm", seconds=at)
    ends(scene, handle, Status.SUCCEEDED, recovered=False)
    execution_id = handle.execution_id
    due = datetime.fromisoformat(only(scene, execution_id, WAIT, "morning").result["until"])
    assert_on_time("until", scene, execution_id, "morning", due)
    assert ran(scene, execution_id) == {"hold": 1, "after": 1}


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
