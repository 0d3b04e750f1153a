"""Each construct of control flow goes on in the middle, on another worker, when its own is killed.

Every test ends in the verifier (see `scene` in conftest.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from fencepost import Handle, Status
from fencepost.records import CheckpointKind, EventName, Execution
from tests.acceptance.constructs.conftest import WORKERS
from tests.acceptance.constructs.kills import killed
from tests.support.apps import flow
from tests.support.scene import Scene

SAGAS = flow

STEP, UNDO, DECISION = CheckpointKind.STEP, CheckpointKind.UNDO, CheckpointKind.DECISION


def ends(scene: Scene, handle: Handle[Any], status: Status) -> Any:
    """Wait for the end; returns the result. Somebody of the family was taken from the dead."""
    outcome = scene.wait(handle, 40)
    assert outcome.status is status, scene.story(handle.execution_id)
    family = [scene.row(handle.execution_id), *descendants(scene, handle.execution_id)]
    for member in family:
        scene.assert_one_line(member.execution_id)
        assert_undone_once(scene, member)
    events = [event for m in family for event in scene.events(m.execution_id)]
    # By a new owner, or by the failure of somebody else, which fences whoever is below it.
    taken = [e for e in events if e.name in (EventName.RECOVERED, EventName.EPOCH_RAISED)]
    dead = {worker.name for worker in scene.fleet.workers if not worker.running}
    assert any(str(e.details.get("from_owner")).split(":")[0] in dead for e in taken)
    return outcome.result


def descendants(scene: Scene, parent_id: UUID) -> list[Execution]:
    """Children of every fan-out of an execution, in order."""
    chain = scene.chain(parent_id)
    fanned = [c.step for c in chain if c.kind is CheckpointKind.FAN_OUT]
    return [child for step in fanned for child in scene.children(parent_id, step)]


def assert_undone_once(scene: Scene, execution: Execution) -> None:
    """Who has turned back has undone each visit that it had completed once, newest first."""
    chain = scene.chain(execution.execution_id)
    undone = [(c.step, c.visit) for c in chain if c.kind is UNDO and c.step in UNDOABLE]
    done = [(c.step, c.visit) for c in chain if c.kind is STEP and c.step in UNDOABLE]
    turned_back = any(c.kind is CheckpointKind.COMPENSATING for c in chain)
    assert undone == (done[::-1] if turned_back else [])


UNDOABLE = frozenset(
    step.name
    for saga in flow.ALL
    for one in (saga, *saga.descendants())
    for step in one.steps
    if step.compensation is not None
)


def ran(scene: Scene, execution_id: UUID | Sequence[UUID]) -> Counter[str]:
    """How often each body ran."""
    return Counter(step for step, what, _ in scene.noted(execution_id) if what == "ran")


def undone(scene: Scene, execution_id: UUID) -> Counter[str]:
    """How often each undo's body ran."""
    return Counter(step for step, what, _ in scene.noted(execution_id) if what == "undone")


def steps(scene: Scene, execution_id: UUID, kind: CheckpointKind = STEP) -> list[tuple[str, int]]:
    """(step, visit) of each checkpoint of a kind."""
    return [(c.step, c.visit) for c in scene.chain(execution_id) if c.kind is kind]


def test_sequence(scene: Scene) -> None:
    handle = killed(scene, flow.sequence, "two.inside", {"label": "sequence"}, label="sequence")
    ends(scene, handle, Status.SUCCEEDED)
    assert ran(scene, handle.execution_id) == {"one": 1, "two": 2, "three": 1}
    assert scene.row(handle.execution_id).epoch == 2


# -- fan-outs --------------------------------------------------------------------------------


def test_all_succeed(scene: Scene) -> None:
    match = {"label": "all", "index": "1"}
    handle = killed(scene, flow.every, "pick.inside", match, label="all", count=3)
    assert ends(scene, handle, Status.SUCCEEDED) == [0, 1, 2]
    children = [child.execution_id for child in scene.children(handle.execution_id)]
    assert [ran(scene, child)["pick"] for child in children] == [1, 2, 1]
    assert steps(scene, handle.execution_id, CheckpointKind.JOIN) == [("items", 1)]
    assert ran(scene, handle.execution_id) == {"split": 1, "gather": 1}


def test_first_failure(scene: Scene) -> None:
    """The one that fails does so when its sibling's worker is dead: the dead one's is undone."""
    scene.gates.shut("sort")
    # The one that fails has come to the gate before the other's worker is killed.
    paused = scene.fleet.arm("sort.inside", "pause", label="first", index="0")
    doomed = scene.fleet.arm("sort.inside", "kill", label="first", index="1")
    handle = scene.start(flow.first_failure, label="first", count=3, failing=[0])
    paused.victim()
    doomed.victim().wait()
    paused.go()
    scene.gates.open("sort")
    ends(scene, handle, Status.COMPENSATED)
    children = scene.children(handle.execution_id)
    assert children[0].status is children[1].status is Status.COMPENSATED
    assert children[2].status in (Status.COMPENSATED, Status.FAILED)
    assert undone(scene, children[1].execution_id) == {"pick": 1}
    assert undone(scene, handle.execution_id) == {"split": 1}


def test_quorum(scene: Scene) -> None:
    """Two of three are enough, one of them on a second worker; the third is stopped, and undone."""
    scene.refill(WORKERS, ready=WORKERS)  # one is killed, one paused, and one goes on
    third = scene.fleet.arm("sort.inside", "pause", label="quorum", index="2")
    match = {"label": "quorum", "index": "0"}
    handle = killed(scene, flow.quorum, "pick.inside", match, label="quorum", count=3)
    third.victim()
    parent_id = handle.execution_id

    def two_succeeded() -> bool:
        return [c.status for c in scene.children(parent_id)[:2]] == [Status.SUCCEEDED] * 2

    scene.fleet.wait_for(two_succeeded, 40, "two to succeed")
    stop = CheckpointKind.STOP
    scene.fleet.wait_for(lambda: steps(scene, parent_id, stop), 40, "the third to be stopped")
    third.go()
    assert ends(scene, handle, Status.SUCCEEDED) == [0, 1]
    stopped = scene.children(parent_id)[2]
    assert stopped.status is Status.COMPENSATED
    assert undone(scene, stopped.execution_id) == {"pick": 1}


def test_collect(scene: Scene) -> None:
    """Killed in the middle of the join: it is made once, with failures as values."""
    match = {"step": "lots", "kind": "join"}
    handle = killed(
        scene, flow.collected, "commit.before", match, label="collected", count=3, failing=[1]
    )
    assert ends(scene, handle, Status.SUCCEEDED) == [0, -1, 2]
    assert steps(scene, handle.execution_id, CheckpointKind.JOIN) == [("lots", 1)]
    statuses = [child.status for child in scene.children(handle.execution_id, "lots")]
    assert statuses == [Status.SUCCEEDED, Status.COMPENSATED, Status.SUCCEEDED]


# -- branch, loop, child, continue as new ----------------------------------------------------


def test_branch(scene: Scene) -> None:
    match = {"label": "branch"}
    handle = killed(scene, flow.branch, "parcel.inside", match, label="branch", count=2)
    ends(scene, handle, Status.SUCCEEDED)
    assert ran(scene, handle.execution_id) == {"weigh": 1, "parcel": 2, "stamp": 1}
    assert steps(scene, handle.execution_id, DECISION) == [("how", 1)]


def test_branch_is_decided_once(scene: Scene) -> None:
    """Killed after the choice is on record."""
    match = {"step": "how", "kind": "decision"}
    handle = killed(scene, flow.branch, "commit.after", match, label="decided", count=1)
    ends(scene, handle, Status.SUCCEEDED)
    assert ran(scene, handle.execution_id) == {"weigh": 1, "letter": 1, "stamp": 1}
    assert steps(scene, handle.execution_id, DECISION) == [("how", 1)]


def test_loop(scene: Scene) -> None:
    """Killed in the second pass: the first isn't made again, and each has a key of its own."""
    match = {"label": "loop", "visit": "2"}
    handle = killed(scene, flow.loop, "less.inside", match, label="loop", count=3)
    ends(scene, handle, Status.SUCCEEDED)
    execution_id = handle.execution_id
    assert steps(scene, execution_id) == [("less", 1), ("less", 2), ("less", 3)]
    assert ran(scene, execution_id) == {"less": 4}


def test_loop_bound(scene: Scene) -> None:
    """A fourth pass is wanted, and three are allowed: all are undone, through another kill."""
    match = {"label": "bound", "visit": "2"}
    handle = killed(scene, flow.loop, "less.undoing", match, label="bound", count=4)
    ends(scene, handle, Status.COMPENSATED)
    execution_id = handle.execution_id
    assert scene.row(execution_id).error["code"] == "saga.loop-bound"
    assert steps(scene, execution_id, UNDO) == [("less", 3), ("less", 2), ("less", 1)]
    assert ran(scene, execution_id) == {"less": 3}


def test_child(scene: Scene) -> None:
    handle = killed(scene, flow.child, "sleep.inside", {"label": "child"}, label="child")
    ends(scene, handle, Status.SUCCEEDED)
    (trip,) = descendants(scene, handle.execution_id)
    assert ran(scene, trip.execution_id) == {"fly": 1, "sleep": 2}
    assert ran(scene, handle.execution_id) == {"tell": 1}
    assert trip.epoch == 2


def test_continue_as_new(scene: Scene) -> None:
    """Killed when the next one is in SQL and nobody was told."""
    match = {"step": "next_one", "kind": "step"}
    handle = killed(scene, flow.line, "commit.after", match, label="line", count=2)
    assert scene.succeeds(handle, 40)["count"] == 0
    line = scene.fp.engine.executions.lineage(handle.execution_id)
    statuses = [one.status for one in line]
    assert statuses == [Status.CONTINUED, Status.CONTINUED, Status.SUCCEEDED]
    assert [ran(scene, one.execution_id)["next_one"] for one in line[:2]] == [1, 1]


def test_continue_as_new_in_its_second(scene: Scene) -> None:
    fault = scene.fleet.arm("next_one.inside", "kill", label="line again")
    handle = scene.start(flow.line, label="line again", count=1)
    fault.victim().wait()
    assert scene.succeeds(handle, 40)["count"] == 0
    assert ran(scene, handle.execution_id)["next_one"] == 2


# -- errors ----------------------------------------------------------------------------------


def test_error_branch_by_inheritance(scene: Scene) -> None:
    """A `CrackedError` takes the branch of its base class, killed in the branch's step."""
    handle = killed(scene, flow.inherited, "told.inside", {"label": "inherits"}, label="inherits")
    assert ends(scene, handle, Status.SUCCEEDED)["label"] == "told of flow.cracked"
    assert ran(scene, handle.execution_id) == {"hold": 1, "crack": 1, "told": 2}
    assert undone(scene, handle.execution_id) == {"hold": 1}


def test_error_branch_by_default(scene: Scene) -> None:
    """Killed while it is undone on the way to the branch."""
    handle = killed(scene, flow.by_default, "hold.undoing", {"label": "default"}, label="default")
    assert ends(scene, handle, Status.SUCCEEDED)["label"] == "shouted of step.raised"
    assert ran(scene, handle.execution_id) == {"hold": 1, "drop": 1, "shouted": 1}
    assert undone(scene, handle.execution_id) == {"hold": 2}


def test_error_branch_continues_as_new(scene: Scene) -> None:
    """Killed in the step that ends the branch: what the branch undid before stays undone once."""
    match = {"label": "told of flow.cracked"}
    fault = scene.fleet.arm("lighten.inside", "kill", **match)
    handle = scene.start(flow.renewed, label="renewed", count=1)
    fault.victim().wait()
    assert scene.succeeds(handle, 40)["count"] == 0
    first, second = scene.fp.engine.executions.lineage(handle.execution_id)
    assert (first.status, second.status) == (Status.CONTINUED, Status.SUCCEEDED)
    assert ran(scene, first.execution_id) == {"borrow": 1, "carry": 1, "told": 1, "lighten": 2}
    assert undone(scene, first.execution_id) == {"borrow": 1}
    assert ran(scene, second.execution_id) == {"borrow": 1, "carry": 1}
    assert undone(scene, second.execution_id) == {}


def test_retry_policy(scene: Scene) -> None:
    """Killed in the second attempt: that attempt is made again, and the count goes on."""
    match = {"label": "retried", "attempt": "2"}
    handle = killed(scene, flow.retried, "flaky.inside", match, label="retried", count=2)
    assert ends(scene, handle, Status.SUCCEEDED) == 3
    execution_id = handle.execution_id
    failed = [e.details["attempt"] for e in scene.events(execution_id, EventName.ATTEMPT_FAILED)]
    assert failed == [1, 2]
    assert ran(scene, execution_id) == {"hold": 1, "flaky": 4}


def test_step_deadline(scene: Scene) -> None:
    """By the takeover its time is over: it isn't begun again, and what was done is undone."""
    handle = killed(scene, flow.hurried, "hurry.inside", {"label": "late"}, label="late")
    ends(scene, handle, Status.COMPENSATED)
    assert scene.row(handle.execution_id).error["code"] == "step.deadline-passed"
    assert ran(scene, handle.execution_id) == {"hold": 1, "hurry": 1}
    assert undone(scene, handle.execution_id) == {"hold": 1}


# -- undoing, and the pivot ------------------------------------------------------------------


def test_compensation(scene: Scene) -> None:
    """Newest first, through a kill in the middle of an undo."""
    handle = killed(scene, flow.undone, "two.undoing", {"label": "undone"}, label="undone")
    ends(scene, handle, Status.COMPENSATED)
    execution_id = handle.execution_id
    assert steps(scene, execution_id, UNDO) == [("three", 1), ("two", 1), ("one", 1)]
    assert undone(scene, execution_id) == {"three": 1, "two": 2, "one": 1}


def test_children_are_undone_when_only_the_parent_fails(scene: Scene) -> None:
    """All had succeeded; they are undone in parallel, one of them on a second worker."""
    match = {"label": "closed", "index": "1"}
    handle = killed(scene, flow.closed, "pick.undoing", match, label="closed", count=3)
    ends(scene, handle, Status.COMPENSATED)
    children = scene.children(handle.execution_id)
    assert [child.status for child in children] == [Status.COMPENSATED] * 3
    assert [undone(scene, c.execution_id)["pick"] for c in children] == [1, 2, 1]
    assert undone(scene, handle.execution_id) == {"split": 1}


def test_a_child_is_undone_when_only_the_parent_fails(scene: Scene) -> None:
    handle = killed(scene, flow.lonely, "fly.undoing", {"label": "lonely"}, label="lonely")
    ends(scene, handle, Status.COMPENSATED)
    (trip,) = descendants(scene, handle.execution_id)
    assert steps(scene, trip.execution_id, UNDO) == [("sleep", 1), ("fly", 1)]
    assert undone(scene, trip.execution_id) == {"sleep": 1, "fly": 2}


def test_pivot(scene: Scene) -> None:
    """Killed in the pivot; what comes after it fails, parks, and is tried again by a person."""
    scene.gates.shut("counter")
    handle = killed(scene, flow.sale, "sell.inside", {"label": "sale"}, label="sale")
    execution_id = handle.execution_id
    assert scene.wait(handle, 40).status is Status.PARKED, scene.story(execution_id)
    scene.gates.open("counter")
    scene.fp.retry(execution_id, by="dana", why="the counter is open")
    scene.fleet.wait_for(lambda: scene.row(execution_id).status.ended, 40, "the end")
    ends(scene, handle, Status.SUCCEEDED)
    assert ran(scene, execution_id)["sell"] == 2
    assert ran(scene, execution_id)["hold"] == 1
    assert undone(scene, execution_id) == {}
    (event,) = scene.events(execution_id, EventName.UNPARKED)
    assert (event.details["by"], event.details["why"]) == ("dana", "the counter is open")
