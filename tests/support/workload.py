"""Executions of several kinds in flight at once, and what must be true of each in the end."""

from __future__ import annotations

from typing import Any

from fencepost import Handle, Status
from fencepost.errors import ServiceUnavailableError
from fencepost.records import CheckpointKind
from tests.support.apps import patient
from tests.support.scene import Scene

LINES, BOOKINGS, PARCELS, ITEMS = 12, 24, 4, 5
ALL = LINES + BOOKINGS + PARCELS
PATIENCE = 60.0
"""Seconds from the end of a fault to the last execution's."""


class Workload:
    """Plain lines that take their time, bookings, and fan-outs, all started at once.

    Args:
        scene: Where they run; its workers have the sagas of `patient`.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.handles: list[Handle[Any]] = [
            *(scene.start(patient.sleeping, label=f"l{n}", seconds=0.2) for n in range(LINES)),
            *(scene.start(patient.parcels, label=f"p{n}", count=ITEMS) for n in range(PARCELS)),
            *(scene.start(patient.booking, label=f"b{n}") for n in range(BOOKINGS)),
        ]

    def ended(self) -> int:
        """How many have ended; none, while nobody can tell."""
        try:
            return sum(handle.status().ended for handle in self.handles)
        except ServiceUnavailableError:
            return 0

    def await_midst(self) -> None:
        """Wait until some have ended, some run, some wait for children, some are queued."""
        self._scene.fleet.wait_for(lambda: self.ended() >= 6, 30, "the first to end")
        assert self.ended() < ALL

    def await_end(self) -> None:
        """Wait until all have ended, and look at what they left."""
        self._scene.fleet.wait_for(lambda: self.ended() == ALL, PATIENCE, "all to end")
        for handle in self.handles:
            self._check_once(handle)

    def _check_once(self, handle: Handle[Any]) -> None:
        scene, execution_id = self._scene, handle.execution_id
        row = scene.row(execution_id)
        assert row.status is Status.SUCCEEDED, scene.story(execution_id)
        scene.assert_one_line(execution_id)
        if row.saga == "parcels":
            self._check_children(handle)
            return
        # In the execution's own transaction, or deduplicated by the sink: landed once.
        noted = [(step, what) for step, what, _ in scene.noted(execution_id)]
        assert noted.count(("third", "applied")) == 1
        assert noted.count(("ledgered", "booked")) == (row.saga == "booking")
        # A plain body may run again where its owner was cut off, and is then recorded once.
        steps = [c.step for c in scene.chain(execution_id)]
        assert len(steps) == len(set(steps)) == 4

    def _check_children(self, handle: Handle[Any]) -> None:
        scene, execution_id = self._scene, handle.execution_id
        kinds = [c.kind for c in scene.chain(execution_id)]
        assert kinds.count(CheckpointKind.JOIN) == 1
        children = scene.children(execution_id)
        assert [child.result for child in children] == list(range(ITEMS))
        for child in children:
            scene.assert_one_line(child.execution_id)
            assert len(scene.noted(child.execution_id, "booked")) == 1
