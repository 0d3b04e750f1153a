"""What the tests of this folder say of an execution again and again."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from fencepost import Handle, Status
from fencepost.engine import Outcome
from fencepost.records import Checkpoint, CheckpointKind, Event, EventName
from fencepost.testing.crash_points import Fault
from tests.support.scene import Scene

SECONDS = 40.0
WHO = {"by": "ada", "why": "the customer has called"}


def killing(scene: Scene, point: str, **match: str) -> Fault:
    """Arm a kill of the next one that comes to a point, for something a person is about to do."""
    return scene.fleet.arm(point, "kill", **match)


def waits(scene: Scene, handle: Handle[Any]) -> None:
    """Wait until the execution waits, and nobody holds it any more."""
    execution_id = handle.execution_id
    leases = scene.fp.engine.leases

    def waiting() -> bool:
        row = scene.row(execution_id)
        return row.status is Status.WAITING and leases.state([execution_id]) == [None]

    scene.fleet.wait_for(waiting, SECONDS, "the execution to wait")


def ends(scene: Scene, handle: Handle[Any], status: Status, *, recovered: bool = True) -> Outcome:
    """Wait for the end; one line of checkpoints, and somebody was taken over."""
    outcome = scene.wait(handle, SECONDS)
    assert outcome.status is status, scene.story(handle.execution_id)
    scene.assert_one_line(handle.execution_id)
    if recovered:
        assert scene.events(handle.execution_id, EventName.RECOVERED), scene.story(
            handle.execution_id
        )
    return outcome


def ran(scene: Scene, execution_id: UUID, what: str = "ran") -> Counter[str]:
    """How often each body ran, or each undo."""
    return Counter(step for step, noted, _ in scene.noted(execution_id) if noted == what)


def only(scene: Scene, execution_id: UUID, kind: CheckpointKind, step: str) -> Checkpoint:
    """The one checkpoint of a kind and step."""
    found = [c for c in scene.chain(execution_id) if (c.kind, c.step) == (kind, step)]
    assert len(found) == 1, scene.story(execution_id)
    return found[0]


def undone(scene: Scene, execution_id: UUID) -> list[str]:
    """The steps whose undo is on record, in that order."""
    return [c.step for c in scene.chain(execution_id) if c.kind is CheckpointKind.UNDO]


def audited(scene: Scene, execution_id: UUID, name: EventName) -> Event:
    """The one event of a name; it says who, and why."""
    (event,) = scene.events(execution_id, name)
    assert {key: event.details.get(key) for key in WHO} == WHO, event
    assert event.at is not None
    return event
