"""A worker dies, or freezes and comes back, at every named point of its work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from fencepost import Saga, Status
from fencepost.records import CheckpointKind, EventName
from tests.acceptance.conftest import WORKERS
from tests.support.apps import sagas
from tests.support.apps.sagas import Order
from tests.support.scene import Scene

ENDS = {
    "line": Status.SUCCEEDED,
    "booking": Status.SUCCEEDED,
    "purchase": Status.COMPENSATED,
}
ZOMBIE = EventName.ZOMBIE_WRITE_REJECTED
REFUSALS = {EventName.LEASE_LOST, ZOMBIE}


@dataclass(frozen=True)
class Crash:
    """Where a worker is lost.

    Attributes:
        committed: The step has its checkpoint, so whoever takes over goes on behind it.
        refused: What a zombie that comes back to this point is told first.
        locks: An open transaction holds the execution's row (on SQLite, the whole database).
    """

    saga: Saga[Order, Any]
    point: str
    match: Mapping[str, str] = field(default_factory=dict)
    committed: bool = False
    refused: EventName = EventName.LEASE_LOST
    locks: bool = False

    def __str__(self) -> str:
        return "-".join([self.saga.name, self.point, *self.match.values()])


SECOND = {"step": "second"}
BOOK = {"step": "ledgered"}
UNDO_CHARGE = {"step": "charge", "kind": CheckpointKind.UNDO}
UNDO_RESERVE = {"step": "reserve", "kind": CheckpointKind.UNDO}
COMPENSATING = {"kind": CheckpointKind.COMPENSATING}

CRASHES = [
    Crash(sagas.line, "step.before", SECOND),
    Crash(sagas.line, "second.inside"),
    Crash(sagas.line, "step.after", SECOND),
    Crash(sagas.line, "commit.before", SECOND),
    Crash(sagas.line, "commit.after", SECOND, committed=True),
    Crash(sagas.booking, "ledgered.before-sql", refused=ZOMBIE),
    Crash(sagas.booking, "transaction.before-fence", BOOK, refused=ZOMBIE, locks=True),
    Crash(sagas.booking, "transaction.before-commit", BOOK, refused=ZOMBIE, locks=True),
    Crash(sagas.booking, "transaction.after-commit", BOOK, committed=True),
    Crash(sagas.purchase, "commit.before", COMPENSATING),
    Crash(sagas.purchase, "commit.after", COMPENSATING, committed=True),
    Crash(sagas.purchase, "step.before", UNDO_CHARGE),
    Crash(sagas.purchase, "commit.before", UNDO_RESERVE),
]


# Where SQLite takes another path than PostgreSQL.
ON_SQLITE = [
    crash
    for crash in CRASHES
    if crash.saga is not sagas.purchase and crash.point.startswith(("commit", "transaction"))
]
# A frozen writer holds all of SQLite; see the test for it below.
FROZEN_ON_SQLITE = [crash for crash in ON_SQLITE if not crash.locks]


@pytest.fixture(scope="module")
def scene_options() -> dict[str, Any]:
    # Only who is lost needs its lease for long: the executions themselves take milliseconds.
    return {"workers": WORKERS, "lease_ttl": 1.0, "settings": {"start_grace": 2.0}}


def check_facts(scene: Scene, crash: Crash, execution_id: UUID) -> None:
    """What must be true however often a worker was lost."""
    scene.assert_one_line(execution_id)
    noted = scene.noted(execution_id)
    done = [(step, what) for step, what, _ in noted]
    match crash.saga.name:
        case "line":
            assert done.count(("first", "ran")) == 1
            # Lost before its checkpoint, a body runs again: at least once, and no more.
            again = not crash.committed and crash.point != "step.before"
            assert done.count(("second", "ran")) == (2 if again else 1)
            assert done.count(("third", "applied")) == 1
        case "booking":
            assert done.count(("first", "ran")) == 1
            assert done.count(("ledgered", "booked")) == 1
            assert done.count(("third", "applied")) == 1
        case "purchase":
            assert done.count(("reserve", "ran")) == 1
            assert done.count(("charge", "booked")) == 1
            assert done.count(("charge", "undone")) == 1
            undos = [c for c in scene.chain(execution_id) if c.kind is CheckpointKind.UNDO]
            assert [undo.step for undo in undos] == ["charge", "reserve"]


@pytest.mark.parametrize("crash", CRASHES, ids=str)
def test_another_worker_continues_after_sigkill(postgres_scene: Scene, crash: Crash) -> None:
    kill(postgres_scene, crash)


@pytest.mark.parametrize("crash", ON_SQLITE, ids=str)
def test_another_worker_continues_after_sigkill_on_sqlite(
    sqlite_scene: Scene, crash: Crash
) -> None:
    kill(sqlite_scene, crash)


def kill(scene: Scene, crash: Crash) -> None:
    """Kill a whole worker at the point, and see another one take over."""
    fault = scene.fleet.arm(crash.point, "kill", **crash.match)
    handle = scene.start(crash.saga, label="killed")
    victim = fault.victim()
    execution_id = handle.execution_id
    outcome = scene.wait(handle)
    assert outcome.status is ENDS[crash.saga.name], scene.story(execution_id)
    check_facts(scene, crash, execution_id)
    (recovered,) = scene.events(execution_id, EventName.RECOVERED)
    assert scene.worker_of(recovered.details["from_owner"]) is victim
    assert scene.worker_of(recovered.owner) is not victim
    assert recovered.epoch == recovered.details["from_epoch"] + 1
    # Entering compensation raises the epoch once more.
    assert scene.row(execution_id).epoch == (3 if crash.saga is sagas.purchase else 2)
    assert recovered.at is not None
    waited = recovered.at.timestamp() - fault.fired()[0]["at"]
    assert waited < scene.lease_ttl + 1.0, f"taken over after {waited:.2f} s"
    assert not [e for e in scene.events(execution_id) if e.name in REFUSALS]


@pytest.mark.parametrize("crash", CRASHES, ids=str)
def test_a_zombie_that_thaws_is_refused(postgres_scene: Scene, crash: Crash) -> None:
    freeze(postgres_scene, crash)


@pytest.mark.parametrize("crash", FROZEN_ON_SQLITE, ids=str)
def test_a_zombie_that_thaws_is_refused_on_sqlite(sqlite_scene: Scene, crash: Crash) -> None:
    freeze(sqlite_scene, crash)


def freeze(scene: Scene, crash: Crash) -> None:
    """Freeze a whole worker at the point, see another one take over, and thaw the first."""
    fault = scene.fleet.arm(crash.point, "freeze", **crash.match)
    handle = scene.start(crash.saga, label="frozen")
    victim = fault.victim()
    execution_id = handle.execution_id
    outcome = scene.wait(handle)
    assert outcome.status is ENDS[crash.saga.name], scene.story(execution_id)
    assert victim.frozen()
    (recovered,) = scene.events(execution_id, EventName.RECOVERED)
    zombie = recovered.details["from_owner"]
    assert scene.worker_of(zombie) is victim
    chain, row = scene.chain(execution_id), scene.row(execution_id)

    victim.thaw()
    ignored = f"[{execution_id}] ignored"
    scene.fleet.wait_for(lambda: ignored in victim.log(), 10, "the zombie to drop out")
    refused = [e for e in scene.events(execution_id) if e.name in REFUSALS]
    expected = [EventName.LEASE_LOST]
    if crash.refused is ZOMBIE:
        # The sink refuses, and then the checkpoint store says what the worker is.
        expected = [ZOMBIE, EventName.LEASE_LOST]
    assert [event.name for event in refused] == expected, scene.story(execution_id)
    for event in refused:
        assert (event.owner, event.epoch) == (zombie, recovered.details["from_epoch"])
        assert event.current_epoch == row.epoch
        assert event.step_key is not None
        assert event.step_key.startswith(f"{execution_id}:")
    assert scene.chain(execution_id) == chain
    assert scene.row(execution_id) == row
    check_facts(scene, crash, execution_id)


@pytest.mark.parametrize("point", ["transaction.before-fence", "transaction.before-commit"])
def test_on_sqlite_a_frozen_transaction_blocks_writers_until_it_thaws(
    sqlite_scene: Scene, point: str
) -> None:
    """No server ends it, as PostgreSQL's would: the fleet waits, and loses or doubles nothing."""
    scene = sqlite_scene
    fault = scene.fleet.arm(point, "freeze", **BOOK)
    handle = scene.start(sagas.booking, label="holds the lock")
    victim = fault.victim()
    leases = scene.fp.engine.leases
    scene.fleet.wait_for(
        lambda: leases.state([handle.execution_id]) == [None], 10, "the lease to expire"
    )
    assert scene.row(handle.execution_id).status is Status.ACTIVE
    victim.thaw()
    assert scene.succeeds(handle, 30) == "holds the lock"
    scene.assert_one_line(handle.execution_id)
    assert scene.runs(handle.execution_id, "ledgered") == 1
    assert scene.runs(handle.execution_id, "first") == 1


@pytest.mark.parametrize("action", ["kill", "freeze"])
def test_a_worker_lost_before_it_owns_anything(postgres_scene: Scene, action: str) -> None:
    """It has taken the lease, and SQL knows nothing of it: its proposal isn't remembered."""
    scene = postgres_scene
    fault = scene.fleet.arm("lease.acquired", action, saga="line")
    handle = scene.start(sagas.line, label="early")
    victim = fault.victim()
    assert scene.succeeds(handle) == "early"
    execution_id = handle.execution_id
    assert scene.row(execution_id).epoch == 1
    assert not scene.events(execution_id, EventName.RECOVERED)
    chain = scene.chain(execution_id)
    if action == "freeze":
        victim.thaw()
        # Like every copy of a finished execution, it has the recorded result to give.
        done = f"[{execution_id}] succeeded"
        scene.fleet.wait_for(lambda: done in victim.log(), 10, "the late copy to end")
    assert scene.row(execution_id).epoch == 1
    assert scene.chain(execution_id) == chain
    assert [scene.runs(execution_id, step) for step in ("first", "second", "third")] == [1, 1, 1]


def test_a_worker_lost_right_after_the_end(postgres_scene: Scene) -> None:
    scene = postgres_scene
    fault = scene.fleet.arm("commit.after", "kill", step="third")
    handle = scene.start(sagas.line, label="late")
    fault.victim()
    assert scene.succeeds(handle) == "late"
    execution_id = handle.execution_id
    # Nobody takes over what has ended; the lease that it left is forgotten.
    leases = f"fencepost:lease:{execution_id}"
    scene.fleet.wait_for(lambda: not scene.redis.exists(leases), 10, "the lease to be forgotten")
    assert scene.redis.zscore("fencepost:leases", str(execution_id)) is None
    assert scene.row(execution_id).epoch == 1
    assert not scene.events(execution_id, EventName.RECOVERED)
    assert scene.runs(execution_id, "third") == 1


@pytest.mark.parametrize("point", ["fan-out.before-publish", "fan-out.after-publish"])
@pytest.mark.parametrize("action", ["kill", "freeze"])
def test_a_worker_lost_while_it_publishes_a_fan_out(
    postgres_scene: Scene, point: str, action: str
) -> None:
    scene = postgres_scene
    fault = scene.fleet.arm(point, action)
    handle = scene.start(sagas.parcels, label="published", count=3)
    victim = fault.victim()
    execution_id = handle.execution_id
    if action == "freeze":
        # Where it died, the reaper is left to find that nothing was published.
        for child in scene.children(execution_id):
            scene.dispatch_again(child.execution_id)
    assert scene.succeeds(handle) == 0 + 1 + 2
    everything = [execution_id, *(c.execution_id for c in scene.children(execution_id))]
    chains = [scene.chain(one) for one in everything]
    if action == "freeze":
        victim.thaw()
        ignored = f"[{execution_id}] ignored"
        scene.fleet.wait_for(lambda: ignored in victim.log(), 10, "the late publisher to end")
        # What it published late finds everything done.
        scene.fleet.wait_for(lambda: not scene.redis.llen("celery"), 10, "an empty queue")
    for one, chain in zip(everything, chains, strict=True):
        scene.assert_one_line(one)
        assert scene.chain(one) == chain
    assert [c.kind for c in chains[0]].count(CheckpointKind.JOIN) == 1
    assert scene.runs(execution_id, "split") == scene.runs(execution_id, "gather") == 1
    assert len(scene.noted(everything, "booked")) == 3
