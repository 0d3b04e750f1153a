"""Messages that come again, too late, or not at all."""

from __future__ import annotations

from fencepost import Status
from fencepost.records import EventName
from tests.acceptance.conftest import MakeScene
from tests.support import queues
from tests.support.apps import sagas
from tests.support.apps.sagas import Order
from tests.support.scene import Scene

COPIES = 5


def test_copies_of_a_running_execution_drop_out(scene: Scene) -> None:
    fault = scene.fleet.arm("second.inside", "pause", label="copied")
    handle = scene.start(sagas.line, label="copied")
    owner = fault.victim()
    execution_id = handle.execution_id
    ignored = f"[{execution_id}] ignored"
    for _ in range(COPIES):
        scene.dispatch_again(execution_id)
    scene.fleet.wait_for(lambda: scene.logged(ignored) == COPIES, 10, "the copies' end")
    assert ignored not in owner.log()
    fault.go()
    assert scene.succeeds(handle) == "copied"
    assert scene.row(execution_id).epoch == 1
    assert [scene.runs(execution_id, step) for step in ("first", "second", "third")] == [1, 1, 1]
    scene.assert_one_line(execution_id)


def test_a_copy_of_a_finished_execution_returns_the_recorded_result(scene: Scene) -> None:
    handle = scene.start(sagas.parcels, label="finished", count=2)
    assert scene.succeeds(handle) == 0 + 1
    # A child, because its Celery result is kept: the chord counts it.
    execution_id = scene.children(handle.execution_id)[1].execution_id
    facts = scene.chain(execution_id), scene.events(execution_id), scene.row(execution_id)
    kept = scene.fp.app.AsyncResult(str(execution_id))
    first = kept.get(timeout=10)
    assert (first["status"], first["result"]) == ("succeeded", 1)
    kept.forget()
    scene.dispatch_again(execution_id)
    assert scene.fp.app.AsyncResult(str(execution_id)).get(timeout=10) == first
    assert (scene.chain(execution_id), scene.events(execution_id), scene.row(execution_id)) == facts
    assert scene.runs(execution_id, "pick") == scene.runs(execution_id, "pack") == 1


def test_a_visibility_timeout_shorter_than_a_step(make_scene: MakeScene) -> None:
    """Celery delivers again what a healthy owner still runs."""
    impatient = {
        "visibility_timeout": 1,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }
    conf = {"broker_transport_options": impatient}
    with make_scene("postgres", workers=3, lease_ttl=1.0, conf=conf) as scene:
        fault = scene.fleet.arm("second.inside", "pause", label="slow")
        handle = scene.start(sagas.line, label="slow")
        fault.victim()
        execution_id = handle.execution_id
        dropped = f"[{execution_id}] ignored"
        scene.fleet.wait_for(lambda: scene.logged(dropped), 20, "the redelivery's end")
        fault.go()
        assert scene.succeeds(handle) == "slow"
        assert scene.row(execution_id).epoch == 1
        assert scene.runs(execution_id, "second") == 1
        scene.assert_one_line(execution_id)

        # The copy's ack takes the live copy's record with it. If the owner is lost after that,
        # no message is left anywhere, and only SQL knows that work is owed.
        fault = scene.fleet.arm("second.inside", "pause", label="doomed")
        handle = scene.start(sagas.line, label="doomed")
        owner = fault.victim()
        execution_id = handle.execution_id
        doomed = f"[{execution_id}] ignored"
        scene.fleet.wait_for(lambda: scene.logged(doomed), 20, "the redelivery's end")
        scene.fleet.wait_for(
            lambda: not scene.redis.exists(*queues.lists("celery"), "unacked"),
            10,
            "no message to be left",
        )
        owner.kill()
        assert scene.succeeds(handle) == "doomed"
        assert scene.row(execution_id).epoch == 2
        scene.assert_one_line(execution_id)


def test_the_reaper_finds_what_no_message_tells_of(make_scene: MakeScene) -> None:
    with make_scene("postgres", workers=0, settings={"start_grace": 2.0}) as scene:
        lost = scene.start(sagas.line, label="lost")
        parent = scene.start(sagas.parcels, label="parent", count=2)
        assert len(queues.messages(scene.redis)) == 2
        scene.redis.delete(*queues.lists("celery"))
        # A connection says nothing when its transaction commits: no message is sent at all.
        with scene.fp.database.execution_options(
            isolation_level="READ COMMITTED"
        ).begin() as connection:
            silent = scene.fp.start(sagas.booking, Order(label="silent"), session=connection)
        assert not queues.messages(scene.redis)
        scene.fleet.ready(2)
        assert scene.succeeds(lost) == "lost"
        assert scene.succeeds(silent) == "silent"
        assert scene.succeeds(parent) == 1
        for handle in (lost, silent, parent):
            assert scene.runs(handle.execution_id, "first") <= 1
            assert not scene.events(handle.execution_id, EventName.RECOVERED)
            scene.assert_one_line(handle.execution_id)


def test_a_worker_terminated_in_mid_step_hands_over_at_once(make_scene: MakeScene) -> None:
    """Nobody waits for the lease, which would last 30 seconds more."""
    with make_scene("postgres", workers=2, lease_ttl=30.0) as scene:
        fault = scene.fleet.arm("second.inside", "pause", label="drained")
        handle = scene.start(sagas.line, label="drained")
        leaving = fault.victim()
        execution_id = handle.execution_id
        leaving.terminate()
        scene.fleet.wait_for(lambda: "Warm shutdown" in leaving.log(), 10, "the shutdown to begin")
        fault.go()
        assert scene.succeeds(handle) == "drained"
        assert leaving.wait() == 0

        # The step in hand was finished and committed by its owner.
        (_, first, second, third) = scene.chain(execution_id)
        assert (first.epoch, second.epoch, third.epoch) == (1, 1, 2)
        assert scene.worker_of(second.owner) is leaving
        assert scene.worker_of(third.owner) is not leaving
        assert (third.created_at - second.created_at).total_seconds() < 3
        assert len(scene.events(execution_id, EventName.LEASE_RELEASED)) == 1
        assert not scene.events(execution_id, EventName.RECOVERED)
        assert scene.runs(execution_id, "second") == 1
        assert scene.row(execution_id).status is Status.SUCCEEDED
