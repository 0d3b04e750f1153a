"""Signals and approvals reach who waits for them once, though whom they wake is killed."""

from __future__ import annotations

from datetime import datetime

import pytest

from fencepost import Handle, Status
from fencepost.engine.operations import Operations
from fencepost.errors import PayloadError
from fencepost.records import CheckpointKind, EventName
from fencepost.stores.sql import SqlEffectStore, SqlExecutionStore
from tests.acceptance.constructs.kills import killed
from tests.acceptance.constructs.people.story import (
    WHO,
    ends,
    killing,
    only,
    ran,
    undone,
    waits,
)
from tests.support.apps import people
from tests.support.apps.people import READING, Reading
from tests.support.scene import Scene

SAGAS = people

WOKEN = CheckpointKind.WOKEN
WAKING = {"kind": "woken"}


def sent(scene: Scene, handle: Handle[object]) -> list[tuple[str, str]]:
    """Name and sender of each signal in the audit trail."""
    events = scene.events(handle.execution_id, EventName.SIGNAL_SENT)
    return [(event.details["name"], event.details["by"]) for event in events]


def test_sent_before_the_wait(scene: Scene) -> None:
    """Sent while the step before it is dead."""
    handle = killed(scene, people.listening, "hold.inside", label="early")
    signal = scene.fp.signal(handle.execution_id, READING, Reading(value=7), by="ada")
    assert ends(scene, handle, Status.SUCCEEDED).result == 7
    woken = only(scene, handle.execution_id, WOKEN, "reading").result
    assert woken == {"by": "signal", "signal_id": str(signal.signal_id), "payload": {"value": 7}}
    assert sent(scene, handle) == [("reading", "ada")]


def test_sent_during_the_wait(scene: Scene) -> None:
    """Whom it wakes dies before the signal is taken."""
    handle = scene.start(people.listening, label="during")
    waits(scene, handle)
    fault = killing(scene, "commit.before", step="reading", **WAKING)
    signal = scene.fp.signal(handle.execution_id, READING, Reading(value=8), by="ada")
    fault.victim().wait()
    assert ends(scene, handle, Status.SUCCEEDED).result == 8
    woken = only(scene, handle.execution_id, WOKEN, "reading").result
    assert woken["signal_id"] == str(signal.signal_id)
    assert ran(scene, handle.execution_id) == {"hold": 1, "heard": 1}
    assert sent(scene, handle) == [("reading", "ada")]


def test_sent_twice(scene: Scene) -> None:
    """One key counts once; each wait takes one signal, also if it dies right after it."""
    handle = scene.start(people.two_readings, label="twice")
    waits(scene, handle)
    fault = killing(scene, "commit.after", step="one", **WAKING)
    send = scene.fp.signal
    execution_id = handle.execution_id
    first = send(execution_id, READING, Reading(value=1), key="a", by="ada")
    assert send(execution_id, READING, Reading(value=2), key="a", by="bob") == first
    fault.victim().wait()
    send(execution_id, READING, Reading(value=3), key="b", by="ada")
    assert ends(scene, handle, Status.SUCCEEDED).result == 3
    taken = [only(scene, execution_id, WOKEN, step).result["payload"] for step in ("one", "two")]
    assert taken == [{"value": 1}, {"value": 3}]
    assert sent(scene, handle) == [("reading", "ada")] * 2
    assert ran(scene, execution_id)["heard"] == 1


def test_a_payload_that_does_not_fit(scene: Scene) -> None:
    """Refused with what is wrong; one from a sender that knows no types is put aside."""
    handle = scene.start(people.listening, label="bad")
    execution_id = handle.execution_id
    waits(scene, handle)
    for signal in (READING, "reading"):
        with pytest.raises(PayloadError, match=r"payload of signal 'reading'.*value") as refused:
            scene.fp.signal(execution_id, signal, {"value": "much"}, by="ada")
        assert refused.value.code
    assert sent(scene, handle) == []
    store = scene.fp.engine.executions
    assert isinstance(store, SqlExecutionStore)
    fault = killing(scene, "commit.before", step="reading", **WAKING)
    Operations(store, SqlEffectStore(store)).signal(execution_id, "reading", "much", by="bob")
    scene.fleet.wait_for(
        lambda: scene.events(execution_id, EventName.SIGNAL_REJECTED), 40, "it to be put aside"
    )
    assert scene.row(execution_id).status is not Status.SUCCEEDED
    scene.fp.signal(execution_id, READING, Reading(value=9), by="ada")
    fault.victim().wait()
    assert ends(scene, handle, Status.SUCCEEDED).result == 9
    (rejected,) = scene.events(execution_id, EventName.SIGNAL_REJECTED)
    assert "payload of signal 'reading'" in rejected.details["reason"]


def test_no_signal_in_time(scene: Scene) -> None:
    match = {"step": "reading", "kind": "wait"}
    handle = killed(scene, people.unheard, "commit.after", match, label="unheard")
    outcome = ends(scene, handle, Status.COMPENSATED, recovered=False)
    assert outcome.error["code"] == "wait.timed-out"
    assert undone(scene, handle.execution_id) == ["hold"]
    assert ran(scene, handle.execution_id) == {"hold": 1}
    assert ran(scene, handle.execution_id, "undone") == {"hold": 1}


# -- approvals -------------------------------------------------------------------------------


def assert_answer(answer: dict[str, object], *, approved: bool) -> None:
    """Who, why and when."""
    assert {key: answer[key] for key in WHO} == WHO
    assert answer["approved"] is approved
    assert datetime.fromisoformat(str(answer["at"])).tzinfo is not None


def assert_sent_by_ada(scene: Scene, handle: Handle[object]) -> None:
    """One answer in the audit trail, from her."""
    (event,) = scene.events(handle.execution_id, EventName.SIGNAL_SENT)
    assert event.details["by"] == WHO["by"]
    assert event.at is not None


def test_yes(scene: Scene) -> None:
    handle = scene.start(people.expense, label="yes")
    waits(scene, handle)
    fault = killing(scene, "commit.before", step="spend", **WAKING)
    scene.fp.approve(handle.execution_id, "spend", **WHO)
    fault.victim().wait()
    ends(scene, handle, Status.SUCCEEDED)
    assert_answer(only(scene, handle.execution_id, WOKEN, "spend").result["payload"], approved=True)
    assert_sent_by_ada(scene, handle)
    assert ran(scene, handle.execution_id) == {"hold": 1, "after": 1}


def test_no(scene: Scene) -> None:
    """Killed when it turns back: the no isn't lost."""
    handle = scene.start(people.expense, label="no")
    waits(scene, handle)
    fault = killing(scene, "commit.before", kind="compensating")
    signal = scene.fp.reject(handle.execution_id, "spend", **WHO)
    fault.victim().wait()
    outcome = ends(scene, handle, Status.COMPENSATED)
    assert outcome.error["code"] == "approval.rejected"
    assert outcome.error["message"] == f"{WHO['by']} has rejected 'spend': {WHO['why']}"
    assert_answer(signal.payload, approved=False)
    assert undone(scene, handle.execution_id) == ["hold"]
    assert ran(scene, handle.execution_id) == {"hold": 1}
    assert_sent_by_ada(scene, handle)


def test_no_answer_in_time(scene: Scene) -> None:
    """Killed in the undo."""
    handle = killed(scene, people.ignored, "hold.undoing", {"label": "nobody"}, label="nobody")
    outcome = ends(scene, handle, Status.COMPENSATED)
    assert outcome.error["code"] == "wait.timed-out"
    assert undone(scene, handle.execution_id) == ["hold"]
    assert ran(scene, handle.execution_id, "undone") == {"hold": 2}
