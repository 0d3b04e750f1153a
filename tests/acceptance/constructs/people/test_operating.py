"""What people decide holds, and is done once, though the worker that does it is killed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost import Handle, Status
from fencepost.records import CheckpointKind, EventName, Execution
from tests.acceptance.constructs.kills import killed
from tests.acceptance.constructs.people.story import (
    SECONDS,
    WHO,
    audited,
    ends,
    killing,
    only,
    ran,
    undone,
    waits,
)
from tests.support.apps import people
from tests.support.apps.sagas import Order
from tests.support.scene import Scene

SAGAS = people

Decide = Callable[[Scene, Handle[object]], Execution]


def parks(scene: Scene, handle: Handle[object]) -> None:
    outcome = scene.wait(handle, SECONDS)
    assert outcome.status is Status.PARKED, scene.story(handle.execution_id)
    assert scene.row(handle.execution_id).parked_reason


# -- a compensation that keeps failing -------------------------------------------------------


def retry(scene: Scene, handle: Handle[object]) -> Execution:
    scene.gates.open("counter")
    return scene.fp.retry(handle.execution_id, **WHO)


def skip(scene: Scene, handle: Handle[object]) -> Execution:
    return scene.fp.skip(handle.execution_id, **WHO)


def resolve(scene: Scene, handle: Handle[object]) -> Execution:
    return scene.fp.resolve_step(handle.execution_id, **WHO)


@pytest.mark.parametrize(("decide", "again"), [(retry, 2), (skip, 0), (resolve, 0)])
def test_an_undo_that_keeps_failing(scene: Scene, decide: Decide, again: int) -> None:
    """It parks; what is decided holds though whoever was woken by it is killed."""
    label = decide.__name__
    scene.gates.shut("counter")
    handle = scene.start(people.stubborn, label=label)
    parks(scene, handle)
    execution_id = handle.execution_id
    assert undone(scene, execution_id) == []
    tried = ran(scene, execution_id, "undone")["stuck"]
    assert tried >= 2
    fault = killing(scene, "commit.before", step="stuck", kind="undo")
    decide(scene, handle)
    fault.victim().wait()
    outcome = ends(scene, handle, Status.COMPENSATED)
    assert outcome.error["code"] == people.ClosedError.code
    assert undone(scene, execution_id) == ["stuck", "hold"]
    assert ran(scene, execution_id, "undone") == {"stuck": tried + again, "hold": 1}
    audited(scene, execution_id, EventName.UNPARKED)


# -- cancel ----------------------------------------------------------------------------------


def assert_cancelled(scene: Scene, handle: Handle[object], *, undos: int) -> None:
    """It ends by the cancel, with its one step undone; of that, this many attempts were made."""
    outcome = ends(scene, handle, Status.COMPENSATED)
    assert outcome.error["code"] == EventName.CANCELLED
    assert outcome.error["message"] == f"cancelled by {WHO['by']}: {WHO['why']}"
    assert undone(scene, handle.execution_id) == ["hold"]
    assert ran(scene, handle.execution_id, "undone") == {"hold": undos}
    audited(scene, handle.execution_id, EventName.CANCELLED)


def test_cancel_while_a_step_runs(scene: Scene) -> None:
    """It runs on a live worker, which is refused; the one that undoes is killed."""
    scene.gates.shut("linger")
    paused = scene.fleet.arm("linger.inside", "pause", label="step")
    fault = killing(scene, "hold.undoing", label="step")
    handle = scene.start(people.busy, label="step")
    paused.victim()
    scene.fp.cancel(handle.execution_id, **WHO)
    fault.victim().wait()
    paused.go()
    scene.gates.open("linger")
    assert_cancelled(scene, handle, undos=2)
    assert ran(scene, handle.execution_id) == {"hold": 1, "linger": 1}


def test_cancel_while_a_dead_workers_step_is_in_hand(scene: Scene) -> None:
    handle = killed(scene, people.busy, "linger.inside", {"label": "dead"}, label="dead")
    scene.fp.cancel(handle.execution_id, **WHO)
    outcome = ends(scene, handle, Status.COMPENSATED, recovered=False)
    assert outcome.error["code"] == EventName.CANCELLED
    assert undone(scene, handle.execution_id) == ["hold"]
    assert ran(scene, handle.execution_id) == {"hold": 1, "linger": 1}
    audited(scene, handle.execution_id, EventName.CANCELLED)


def test_cancel_while_a_timer_is_pending(scene: Scene) -> None:
    handle = scene.start(people.nap, label="timer", seconds=300)
    waits(scene, handle)
    fault = killing(scene, "hold.undoing", label="timer")
    scene.fp.cancel(handle.execution_id, **WHO)
    fault.victim().wait()
    assert_cancelled(scene, handle, undos=2)
    assert ran(scene, handle.execution_id) == {"hold": 1}


def test_cancel_while_parked(scene: Scene) -> None:
    handle = scene.start(people.asked, label="parked")
    parks(scene, handle)
    fault = killing(scene, "commit.before", kind="compensating")
    scene.fp.cancel(handle.execution_id, **WHO)
    fault.victim().wait()
    assert_cancelled(scene, handle, undos=1)
    assert ran(scene, handle.execution_id) == {"hold": 1, "asks": 1}


def test_cancel_on_the_way_to_an_error_branch(scene: Scene) -> None:
    """Its undo is killed, then it is cancelled: what is left is undone, the branch isn't taken."""
    handle = killed(scene, people.forgiven, "hold.undoing", {"label": "branch"}, label="branch")
    fault = killing(scene, "hold.undoing", label="branch")
    scene.fp.cancel(handle.execution_id, **WHO)
    fault.victim().wait()
    assert_cancelled(scene, handle, undos=3)
    assert ran(scene, handle.execution_id) == {"hold": 1, "drop": 1}


# -- pause and resume ------------------------------------------------------------------------


def test_pause_and_resume(scene: Scene) -> None:
    """A child's worker is dead, and nobody takes it over before the parent is resumed."""
    scene.gates.shut("pick")
    doomed, other = (
        scene.fleet.arm("pick.inside", "pause", label="paused", index=str(index))
        for index in range(2)
    )
    handle = scene.start(people.counted, label="paused", count=2)
    other.victim()
    victim = doomed.victim()
    scene.fp.pause(handle.execution_id, **WHO)
    victim.kill()
    first, second = scene.children(handle.execution_id)
    leases = scene.fp.engine.leases
    # The other child's step runs on: at its end its owner looks whether it is paused.
    scene.refill(3, ready=3)
    scene.gates.open("pick")
    children = [first.execution_id, second.execution_id]
    scene.fleet.wait_for(
        lambda: leases.state(children) == [None, None], SECONDS, "both leases to be gone"
    )
    # The fleet does what isn't paused, and leaves alone what is.
    scene.succeeds(scene.start(people.busy, label="meanwhile"), SECONDS)
    assert ran(scene, first.execution_id) == {"pick": 1}
    only(scene, second.execution_id, CheckpointKind.STEP, "pick")
    assert ran(scene, second.execution_id)["after"] == 0
    assert scene.row(handle.execution_id).paused_at is not None
    scene.fp.resume(handle.execution_id, **WHO)
    assert ends(scene, handle, Status.SUCCEEDED, recovered=False).result == 2
    assert scene.events(first.execution_id, EventName.RECOVERED)
    assert ran(scene, first.execution_id) == {"pick": 2, "after": 1}
    for one in (handle.execution_id, first.execution_id, second.execution_id):
        scene.assert_one_line(one)
    paused = audited(scene, handle.execution_id, EventName.PAUSED)
    resumed = audited(scene, handle.execution_id, EventName.RESUMED)
    moments = [paused.at, resumed.at]
    moments += [one.at for one in scene.events(first.execution_id, EventName.RECOVERED)]
    assert moments == sorted(at for at in moments if at is not None)


# -- from the failed step, and forks ---------------------------------------------------------


def test_retry_from_the_failed_step(scene: Scene) -> None:
    """Its next attempt is killed; what was done before it isn't done again."""
    scene.gates.shut("counter")
    handle = killed(scene, people.reopened, "look.inside", {"label": "re"}, label="re")
    outcome = ends(scene, handle, Status.FAILED)
    assert outcome.error["code"] == people.ClosedError.code
    execution_id = handle.execution_id
    before = ran(scene, execution_id)
    fault = killing(scene, "counter.inside", label="re")
    scene.gates.open("counter")
    scene.fp.retry(execution_id, **WHO)
    fault.victim().wait()
    ends(scene, handle, Status.SUCCEEDED)
    assert ran(scene, execution_id) == {**before, "counter": before["counter"] + 2, "after": 1}
    audited(scene, execution_id, EventName.REOPENED)
    kinds = [c.kind for c in scene.chain(execution_id)]
    assert kinds.count(CheckpointKind.REOPENED) == 1


def test_fork_with_changed_input(scene: Scene) -> None:
    original = scene.start(people.forked, label="old")
    assert scene.succeeds(original, SECONDS) == "old for old"
    seq = only(scene, original.execution_id, CheckpointKind.STEP, "look").seq
    before = scene.chain(original.execution_id), scene.row(original.execution_id)
    fault = killing(scene, "tally.inside", label="old")
    fork = scene.fp.fork(original.execution_id, at=seq, input=Order(label="new"), **WHO)
    fault.victim().wait()
    assert ends(scene, fork, Status.SUCCEEDED).result == "old for new"
    assert ran(scene, fork.execution_id) == {"tally": 2}
    assert scene.row(fork.execution_id).forked_from == original.execution_id
    assert (scene.chain(original.execution_id), scene.row(original.execution_id)) == before
    details = audited(scene, original.execution_id, EventName.FORKED).details
    assert (details["as"], details["seq"]) == (str(fork.execution_id), seq)


# -- durable tasks ---------------------------------------------------------------------------


def test_cancel_a_task(scene: Scene) -> None:
    fault = killing(scene, "look.inside", label="task")
    handle = scene.fp.start(people.survey, Order(label="task"))
    fault.victim().wait()
    again = killing(scene, "commit.before", kind="task-failed")
    scene.fp.cancel(handle.execution_id, **WHO)
    again.victim().wait()
    outcome = ends(scene, handle, Status.FAILED)
    assert outcome.error["code"] == EventName.CANCELLED
    assert ran(scene, handle.execution_id) == {"look": 1}
    audited(scene, handle.execution_id, EventName.CANCELLED)


def test_fork_a_task(scene: Scene) -> None:
    """It failed; the fork begins with what is on record, with another input."""
    scene.gates.shut("counter")
    original = scene.fp.start(people.survey, Order(label="old"))
    assert ends(scene, original, Status.FAILED, recovered=False).error
    scene.gates.open("counter")
    seq = only(scene, original.execution_id, CheckpointKind.STEP, "look").seq
    fault = killing(scene, "counter.inside", label="old")
    fork = scene.fp.fork(original.execution_id, at=seq, input=Order(label="old", count=2), **WHO)
    fault.victim().wait()
    assert ends(scene, fork, Status.SUCCEEDED).result == "2 for old"
    assert ran(scene, fork.execution_id) == {"counter": 2, "after": 1}
    assert audited(scene, original.execution_id, EventName.FORKED).details["seq"] == seq
