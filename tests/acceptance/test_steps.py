"""Steps that fail, that take too long, that kill their worker, that ask for a person."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost import Saga, Status
from fencepost.records import EventName
from tests.acceptance.conftest import MakeScene
from tests.support.apps import sagas
from tests.support.apps.sagas import Order
from tests.support.scene import Scene


def test_failed_attempts_are_recorded_and_backed_off(scene: Scene) -> None:
    handle = scene.start(sagas.retried, label="flaky", count=2)
    assert scene.succeeds(handle) == 3
    execution_id = handle.execution_id
    failures = scene.events(execution_id, EventName.ATTEMPT_FAILED)
    assert [event.details["attempt"] for event in failures] == [1, 2]
    assert [event.details["error"]["message"] for event in failures] == ["attempt 1", "attempt 2"]
    acquired = scene.events(execution_id, EventName.LEASE_ACQUIRED)
    assert [event.epoch for event in acquired] == [1, 2, 3]
    limits = [0.2, 0.4]
    for failure, limit, following in zip(failures, limits, acquired[1:], strict=True):
        assert 0 <= failure.details["retry_in"] <= limit
        assert failure.at is not None
        assert following.at is not None
        waited = (following.at - failure.at).total_seconds()
        # Counted by the database's clock, which SQLite reads in milliseconds.
        assert waited >= failure.details["retry_in"] - 0.002
    assert scene.chain(execution_id)[-1].attempt == 3
    # A handed-back execution is no takeover.
    assert not scene.events(execution_id, EventName.RECOVERED)
    assert scene.runs(execution_id, "flaky") == 3


def test_the_last_attempt_fails_for_good(postgres_scene: Scene) -> None:
    scene = postgres_scene
    handle = scene.start(sagas.retried, label="hopeless", count=9)
    outcome = scene.wait(handle)
    assert outcome.status is Status.FAILED
    assert outcome.error["error_type"] == "builtins.ConnectionError"
    assert outcome.error["message"] == "attempt 3"
    assert scene.runs(handle.execution_id, "flaky") == 3
    scene.assert_one_line(handle.execution_id)


@pytest.mark.parametrize(
    ("saga", "point", "refusals"),
    [
        (sagas.timed, "hurried.inside", [EventName.LEASE_LOST]),
        (
            sagas.timed_booking,
            "hurried_booking.inside",
            [EventName.ZOMBIE_WRITE_REJECTED, EventName.LEASE_LOST],
        ),
    ],
    ids=["plain", "transactional"],
)
def test_a_step_past_its_timeout_is_fenced(
    scene: Scene, saga: Saga[Order, Any], point: str, refusals: list[str]
) -> None:
    """Its worker is healthy and could renew the lease for ever."""
    fault = scene.fleet.arm(point, "pause", label="slow")
    handle = scene.start(saga, label="slow")
    slow = fault.victim()
    assert scene.succeeds(handle) == "slow"
    execution_id = handle.execution_id
    (recovered,) = scene.events(execution_id, EventName.RECOVERED)
    assert scene.worker_of(recovered.details["from_owner"]) is slow
    acquired = scene.events(execution_id, EventName.LEASE_ACQUIRED)[0]
    assert acquired.at is not None
    assert recovered.at is not None
    held = (recovered.at - acquired.at).total_seconds()
    assert held >= sagas.STEP_TIMEOUT.total_seconds()
    assert "its step or commit takes too long" in slow.log()

    chain = scene.chain(execution_id)
    fault.go()
    ignored = f"[{execution_id}] ignored"
    scene.fleet.wait_for(lambda: ignored in slow.log(), 10, "the late step's end")
    told = [e.name for e in scene.events(execution_id) if e.owner == acquired.owner]
    assert told[1:] == refusals
    assert scene.chain(execution_id) == chain
    assert scene.row(execution_id).epoch == 2
    assert len(scene.noted(execution_id, "booked")) == (saga is sagas.timed_booking)
    assert len(scene.noted(execution_id, "applied")) == 1
    scene.assert_one_line(execution_id)


def test_a_step_that_kills_its_worker_each_time_is_parked(make_scene: MakeScene) -> None:
    limit = {"max_recoveries": 2}
    with make_scene("postgres", workers=2, lease_ttl=1.0, settings=limit) as scene:
        handle = scene.start(sagas.poisoned, label="poison")
        outcome = scene.wait(handle)
        execution_id = handle.execution_id
        assert outcome.status is Status.PARKED
        row = scene.row(execution_id)
        assert row.parked_reason == "taken over 3 times without a new checkpoint (limit 2)"
        # The first owner and two more have tried it; the third that took over has not.
        assert scene.runs(execution_id, "poison") == 3
        assert row.epoch == 4
        assert scene.runs(execution_id, "first") == 1
        (parked,) = scene.events(execution_id, EventName.PARKED)
        assert parked.details["reason"] == row.parked_reason
        scene.assert_one_line(execution_id)
        # It keeps nothing: no lease, no message, and the workers serve others.
        assert scene.fp.engine.leases.state([execution_id]) == [None]
        assert scene.succeeds(scene.start(sagas.line, label="others")) == "others"
        assert scene.row(execution_id).status is Status.PARKED


def test_a_step_asks_for_a_person(scene: Scene) -> None:
    handle = scene.start(sagas.asked, label="this")
    assert scene.wait(handle).status is Status.PARKED
    execution_id = handle.execution_id
    assert scene.row(execution_id).parked_reason == "is this right?"
    scene.dispatch_again(execution_id)
    parked = f"execution {execution_id} is parked"
    scene.fleet.wait_for(lambda: scene.logged(parked) == 2, 10, "a late message to drop out")
    assert scene.runs(execution_id, "ask") == 1

    scene.fp.engine.executions.unpark(execution_id, "it is")
    scene.fleet.wait_for(lambda: scene.runs(execution_id, "ask") == 2, 10, "another try")
    scene.fleet.wait_for(
        lambda: scene.row(execution_id).status is Status.PARKED, 10, "it to be parked again"
    )
    (unparked,) = scene.events(execution_id, EventName.UNPARKED)
    assert unparked.details == {"why": "it is", "by": "", "reason": "is this right?"}
