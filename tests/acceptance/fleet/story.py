"""Fifty executions in all states, before a deploy; and what has to be said to them to go on."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from fencepost import Fencepost, Handle, Phase, Saga, Status
from fencepost.records import Execution
from tests.support.apps import versions
from tests.support.apps.sagas import Order
from tests.support.apps.versions import GO, RETRY, UNDO
from tests.support.scene import Scene

SECONDS = 60.0
CHILDREN = 3

INSIDE, UNBEGUN, PARCELS, TIMER = "inside", "unbegun", "parcels", "timer"
SIGNALLED, PAUSED, PARKED = "signalled", "paused", "parked"
COMPENSATING, RETRIED = "compensating", "retried"
SUCCEEDED, COMPENSATED = "succeeded", "compensated"
"""In which state a deploy finds an execution."""


def state_of(row: Execution) -> str:
    """In which of the states that matter to a deploy it is."""
    if row.paused_at is not None:
        return "paused"
    if row.status is Status.WAITING:
        return f"waiting for {_awaited(row)}"
    if row.status is not Status.ACTIVE:
        return str(row.status)
    if row.phase is Phase.COMPENSATING:
        return "compensating"
    if row.attempt:
        return "retry back-off"
    return "active, inside a step" if row.owner else "active, not begun"


def _awaited(row: Execution) -> str:
    if row.waits_for is not None:
        return "a signal"
    return "children" if row.wake_at is None else "a timer"


class Story:
    """What happens to the executions of all families.

    Args:
        scene: With workers of the old code, which nothing keeps busy.

    Attributes:
        handles: By family and state.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.handles: dict[tuple[str, str], Handle[str]] = {}
        self._end_some()
        scene.gates.shut(RETRY, UNDO)
        for name, old in versions.OLD.items():
            self._start(name, INSIDE, old.line, held=True)
            self._start(name, PARCELS, old.parcels, held=True)
            self._start(name, TIMER, old.timer)
            self._start(name, SIGNALLED, old.signalled)
            self._start(name, PAUSED, old.signalled)
            self._start(name, PARKED, old.asking)
            self._start(name, COMPENSATING, old.refused)
            self._start(name, RETRIED, old.retried)
        self._await_states()
        for name, old in versions.OLD.items():
            scene.fp.pause(self.handles[name, PAUSED].execution_id, by="us", why="to think")
            self._start(name, UNBEGUN, old.line, sent=False)

    def _end_some(self) -> None:
        for name, old in versions.OLD.items():
            self._start(name, SUCCEEDED, old.line)
            self._start(name, COMPENSATED, old.refused)
        for handle in self.handles.values():
            self.scene.wait(handle, SECONDS)

    def _start(
        self,
        name: str,
        state: str,
        saga: Saga[Order, str],
        *,
        held: bool = False,
        sent: bool = True,
    ) -> None:
        order = Order(label=f"{name}-{state}", count=CHILDREN)
        if held:
            self.scene.gates.shut(order.label)
        if sent:
            handle = self.scene.fp.start(saga, order)
        else:
            # In a transaction of one's own there is no message: the reapers will find it.
            with self.scene.fp.database.begin() as connection:
                handle = self.scene.fp.start(saga, order, session=connection)
        self.handles[name, state] = handle

    # -- asking ----------------------------------------------------------------------------

    def of(self, *names: str) -> list[UUID]:
        """The executions of some families, children included."""
        found = []
        for (name, state), handle in self.handles.items():
            if name in names:
                found.append(handle.execution_id)
                if state == PARCELS:
                    children = self.scene.children(handle.execution_id)
                    found += [child.execution_id for child in children]
        return found

    def rows(self, *names: str) -> list[Execution]:
        """The same as they are now."""
        return [self.scene.row(execution_id) for execution_id in self.of(*names)]

    def states(self) -> Counter[str]:
        """How many executions are in each state."""
        return Counter(state_of(row) for row in self.rows(*versions.NAMES))

    def inside(self, worker: str) -> list[str]:
        """The gates at which a worker's steps are held up."""
        held = self.scene.gates.closed()
        found = []
        for row in self.rows(*versions.NAMES):
            label = row.input["label"]
            if label in held and (row.owner or "").startswith(f"{worker}:"):
                found.append(label)
        return found

    def _await_states(self) -> None:
        families = len(versions.NAMES)
        wanted = {
            "active, inside a step": 2 * families,
            "queued": (CHILDREN - 1) * families,
            "waiting for children": families,
            "waiting for a timer": families,
            "waiting for a signal": 2 * families,
            "parked": families,
            "compensating": families,
            "retry back-off": families,
        }
        self.scene.fleet.wait_for(
            lambda: wanted.items() <= self.states().items(), SECONDS, f"{wanted}"
        )

    # -- going on --------------------------------------------------------------------------

    def say(self, fp: Fencepost, *names: str) -> None:
        """What the waiting, paused and parked ones of some families need to go on."""
        for name in names:
            for state in (SIGNALLED, PAUSED):
                execution_id = self.handles[name, state].execution_id
                fp.signal(execution_id, GO, Order(label=f"{name}-{state}"), by="us")
            fp.resume(self.handles[name, PAUSED].execution_id, by="us", why="thought")
            order = Order(label=f"{name}-{PARKED}").model_dump()
            parked = self.handles[name, PARKED].execution_id
            fp.resolve_step(parked, order, by="us", why="it is right")

    def assert_ended_well(self, *names: str) -> None:
        """Each with its own result; what failed on purpose is undone."""
        for (name, state), handle in self.handles.items():
            if name not in names:
                continue
            outcome = self.scene.wait(handle, SECONDS)
            story = self.scene.story(handle.execution_id)
            if state in (COMPENSATING, COMPENSATED):
                assert outcome.status is Status.COMPENSATED, story
                assert outcome.error["code"] == "order.not-shipped"
            else:
                assert outcome.status is Status.SUCCEEDED, story
                assert outcome.result == f"{name}-{state}"

    def assert_done_once(self) -> None:
        """No step ran twice, no effect is doubled or missing, no chain is broken."""
        for execution_id in self.of(*versions.NAMES):
            self.scene.assert_one_line(execution_id)
            noted = Counter((step, what) for step, what, _ in self.scene.noted(execution_id))
            assert set(noted.values()) == {1}, (noted, self.scene.story(execution_id))
            completed = [c.step for c in self.scene.chain(execution_id) if c.kind == "step"]
            ran = {step for step, what in noted if what == "ran"}
            assert ran <= set(completed), self.scene.story(execution_id)
