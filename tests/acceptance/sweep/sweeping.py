"""Arm faults, let every saga of the sweep run through them, and keep the fleet alive meanwhile."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa

from fencepost import Handle, Status
from fencepost.engine import points
from fencepost.records import CheckpointKind, NewSignal
from tests.support.apps import sweep
from tests.support.apps.sagas import Order
from tests.support.fleet import Fault
from tests.support.scene import Scene
from tests.support.waiting import wait_for

WORKERS = 4
PATIENCE = 90.0
ROUNDS = 6
"""Workloads that a batch may take until each of its faults has fired."""

ENDS = {
    "straight": {Status.SUCCEEDED},
    "turned": {Status.SUCCEEDED},
    "spread": {Status.SUCCEEDED},
    "stopped": {Status.FAILED, Status.COMPENSATED},
    "enough": {Status.SUCCEEDED},
    "waits": {Status.SUCCEEDED},
    "hurried": {Status.FAILED, Status.COMPENSATED},
    "asks": {Status.SUCCEEDED},
}


CAUSES = {
    "effect.before-probe": ("effect.applied", "kill", (("effect", "probed"),)),
    "effect.after-probe": ("effect.applied", "kill", (("effect", "probed"),)),
    "fence.": ("effect.applied", "kill", (("effect", "fenced"),)),
    "executions.claim.": ("step.after", "kill", (("step", "reserve"),)),
    "leases.discard": ("commit.after", "kill", (("step", "flaky"),)),
    "executions.hand_back": ("step.before", "term", (("step", "dawdle"),)),
}
"""What has to go wrong first, for a worker to come to a point."""

SLOW = "executions.defer"
"""Only for a step that works on while its row is due again."""


@dataclass
class Sweep:
    """One database's sweep.

    Attributes:
        scene: Where it runs.
        started: All executions so far, by saga.
        missed: (point, action) of faults that nobody came to.
        fired: How many fired.
    """

    scene: Scene
    started: list[tuple[str, Handle[Any]]] = field(default_factory=list)
    missed: list[tuple[str, str]] = field(default_factory=list)
    fired: int = 0

    def batch(self, points: Sequence[str], action: str) -> None:
        """Arm a fault at each of some points, and run workloads until all have fired."""
        armed = [self.scene.fleet.arm(point, action) for point in points]
        with self._nursed(armed):
            for _ in range(ROUNDS):
                self._bring_about(points)
                self._workload(slow=any(point.startswith(SLOW) for point in points))
                if all(fault.fired() for fault in armed):
                    break
        self.fired += sum(bool(fault.fired()) for fault in armed)
        self.missed += [
            (point, action) for point, fault in zip(points, armed, strict=True) if not fault.fired()
        ]
        self.scene.fleet.disarm()

    def reached(self) -> set[str]:
        """Run workloads in which workers are lost, and see which points workers come to."""
        fleet = self.scene.fleet
        armed = {point: fleet.arm(point, "note") for point in [*NAMED, *points.names()]}
        with self._nursed([]):
            for _ in range(2):
                self._bring_about(CAUSES)
                self._workload(slow=True)
        fleet.disarm()
        return {point for point, fault in armed.items() if fault.fired()}

    def _bring_about(self, points: Iterable[str]) -> None:
        """Some points are only for those who come after somebody, or who leave."""
        causes = {CAUSES[name] for point in points for name in CAUSES if point.startswith(name)}
        for point, action, match in causes:
            self.scene.fleet.arm(point, action, **dict(match))

    # -- a workload ------------------------------------------------------------------------

    def _workload(self, *, slow: bool = False) -> None:
        handles = list(self._start(seconds=4 * self.scene.lease_ttl if slow else 0.0))
        self.started += handles
        waiting = {h.execution_id for _, h in handles}

        def ended() -> bool:
            ends = self._ends(waiting)
            waiting.difference_update(ends)
            return not waiting

        wait_for(ended, PATIENCE, lambda: self._told(waiting), poll=0.1)

    @contextmanager
    def _nursed(self, armed: list[Fault]) -> Iterator[None]:
        """See to the fleet all the time: on SQLite a frozen writer holds up this process, too."""
        done = threading.Event()

        def nurse() -> None:
            while not done.wait(0.1):
                self._nurse(armed)

        thread = threading.Thread(target=nurse)
        thread.start()
        try:
            yield
            self._rest(armed)
        finally:
            done.set()
            thread.join()

    def _rest(self, armed: list[Fault]) -> None:
        """Until whoever was frozen has been thawed, too."""
        frozen = [r["at"] for fault in armed for r in fault.fired() if r["action"] == "freeze"]
        if frozen:
            left = max(frozen) + 2 * self.scene.lease_ttl + 0.5 - time.time()
            time.sleep(max(0.0, left))

    def _start(self, seconds: float) -> Iterator[tuple[str, Handle[Any]]]:
        scene = self.scene
        for saga in sweep.ALL:
            copies = 2 if saga is sweep.waits else 1
            for copy in range(copies):
                failing = [0] if saga is sweep.stopped else []
                handle = scene.start(
                    saga,
                    label=f"{saga.name} {copy}",
                    count=3,
                    failing=failing,
                    seconds=seconds,
                )
                if saga is sweep.waits:
                    self._send(handle.execution_id)
                yield saga.name, handle

    def _send(self, execution_id: UUID) -> None:
        """One that nobody can read, as an older program might send it, and a good one."""
        unreadable = NewSignal(
            signal_id=uuid4(), execution_id=execution_id, name=sweep.READY.name, payload=7
        )
        self.scene.fp.engine.executions.send_signal(unreadable)
        self.scene.fp.signal(execution_id, sweep.READY, Order(label="now"))

    def _ends(self, ids: set[UUID]) -> set[UUID]:
        ended = set()
        for execution_id in ids:
            row = self.scene.row(execution_id)
            if row.status is Status.PARKED:
                assert row.saga == "asks", self.scene.story(execution_id)
                self.scene.fp.retry(execution_id, by="the test", why="it is")
            if row.status.ended:
                ended.add(execution_id)
        return ended

    def _told(self, waiting: set[UUID]) -> str:
        stories = [self.scene.story(execution_id) for execution_id in waiting]
        return "the workload's end\n" + "\n".join(stories)

    # -- the fleet -------------------------------------------------------------------------

    def _nurse(self, armed: list[Fault]) -> None:
        """Thaw who was frozen for longer than its lease lasts; replace the dead."""
        fleet = self.scene.fleet
        late = time.time() - 2 * self.scene.lease_ttl
        for fault in armed:
            for record in fault.fired():
                if record["action"] == "freeze" and record["at"] < late:
                    worker = fleet.of(record["pgid"])
                    worker.signal_group(signal.SIGCONT)
        missing = WORKERS - len(fleet.alive)
        if missing > 0:
            fleet.start(missing, concurrency=2)


NAMED = (
    "lease.acquired",
    "step.before",
    "step.after",
    "commit.before",
    "commit.after",
    "transaction.before-fence",
    "transaction.before-commit",
    "transaction.after-commit",
    "effect.before-intent",
    "effect.after-intent",
    "effect.applied",
    "effect.before-conclusion",
    "effect.after-conclusion",
    "effect.confirmed",
    "effect.before-probe",
    "effect.after-probe",
    "fence.before-advance",
    "fence.advanced",
    "fan-out.before-publish",
    "fan-out.after-publish",
)


def check(sweep_of: Sweep) -> None:
    """What must be true of every execution, whoever was lost."""
    scene = sweep_of.scene
    for saga, handle in sweep_of.started:
        row = scene.row(handle.execution_id)
        assert row.status in ENDS[saga], scene.story(handle.execution_id)
        scene.assert_one_line(handle.execution_id)
        if saga == "straight":
            _check_effects(scene, handle.execution_id)
        kinds = [c.kind for c in scene.chain(handle.execution_id)]
        assert kinds.count(CheckpointKind.JOIN) <= 1
    with scene.fp.database.connect() as connection:
        keys = sa.select(sa.func.count(), sa.func.count(sa.distinct(sweep.payments.c.reference)))
        paid, references = connection.execute(keys.where(sweep.payments.c.kind == "probed")).one()
    assert paid == references, "the till has taken something twice"


def _check_effects(scene: Scene, execution_id: UUID) -> None:
    noted = [(step, what) for step, what, _ in scene.noted(execution_id)]
    assert noted.count(("record", "booked")) == 1, scene.story(execution_id)
    with scene.fp.database.connect() as connection:
        query = sa.select(sweep.payments.c.kind).where(
            sweep.payments.c.reference.startswith(str(execution_id))
        )
        kinds = sorted(connection.scalars(query))
    assert kinds == ["booked", "fenced", "keyed", "probed"]
