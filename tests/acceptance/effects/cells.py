"""The cells of the matrix: a kind, the point at which a worker is lost, and how it is lost.

Cells with the same point and fault make a wave: one execution of each kind, all at once, each
losing a worker of its own. What is lost is taken over by the workers that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from fencepost import EffectKind, Handle, Status
from fencepost.records import EventName
from tests.acceptance.effects import shop
from tests.acceptance.effects.world import World
from tests.support.fleet import Fault, Worker

REFUSALS = (EventName.LEASE_LOST, EventName.ZOMBIE_WRITE_REJECTED)
SURVIVORS = 2
AGAIN_SECONDS = 1.5
"""After this long without having been lost, an execution's message counts as lost."""


class Point(StrEnum):
    """Where a worker is lost."""

    BEFORE_INTENT = "before intent"
    AFTER_INTENT = "after intent"
    LANDED = "call landed"
    CONFIRMED = "after confirm"
    BEFORE_CHECKPOINT = "before checkpoint"
    AFTER_CHECKPOINT = "after checkpoint"


class Loss(StrEnum):
    """How it is lost."""

    KILL = "SIGKILL"
    FREEZE = "SIGSTOP, takeover, SIGCONT"


EFFECT_POINTS = {
    Point.BEFORE_INTENT: "effect.before-intent",
    Point.AFTER_INTENT: "effect.after-intent",
    Point.LANDED: "effect.applied",
    Point.CONFIRMED: "effect.confirmed",
}
COMMIT_POINTS = {
    Point.BEFORE_CHECKPOINT: ("commit.before", "transaction.before-commit"),
    Point.AFTER_CHECKPOINT: ("commit.after", "transaction.after-commit"),
}
IN_TRANSACTION = (Point.AFTER_INTENT, Point.LANDED, Point.CONFIRMED, Point.BEFORE_CHECKPOINT)
"""Where a transactional step holds locks."""

OUTCOME_UNKNOWN = (Point.AFTER_INTENT, Point.LANDED)
"""Where a new owner can't know from the ledger alone what has landed."""


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix."""

    kind: EffectKind
    point: Point
    loss: Loss

    @property
    def reference(self) -> str:
        """What the sinks count by."""
        return f"{self.kind}/{self.point}/{self.loss.name}".replace(" ", "-")

    @property
    def transactional(self) -> bool:
        """Whether the effect is part of the step's transaction."""
        return self.kind is EffectKind.TRANSACTIONAL

    @property
    def parks(self) -> bool:
        """Whether a person is needed: nobody else can know."""
        return self.kind is EffectKind.AT_MOST_ONCE and self.point in OUTCOME_UNKNOWN

    def holds_all_of(self, database: str) -> bool:
        """Whether its frozen transaction keeps everyone else from writing (SQLite)."""
        locks = self.transactional and self.point in IN_TRANSACTION and self.loss is Loss.FREEZE
        return locks and database == "sqlite"

    def refuses_at(self, database: str) -> str | None:
        """Which sink is the first to refuse the worker that was frozen here and thawed."""
        if self.loss is Loss.KILL or self.holds_all_of(database):
            return None
        if self.transactional and self.point is not Point.AFTER_CHECKPOINT:
            return "ledger"
        if self.point in (Point.BEFORE_INTENT, Point.LANDED):
            return shop.EFFECTS[self.kind].sink
        # Past its deadline it makes no call; it hands back, or commits, and is told.
        return "checkpoint-store"

    def arm(self, world: World) -> Fault:
        """Set the trap. In one wave, effect and step are this kind's alone."""
        action = "kill" if self.loss is Loss.KILL else "freeze"
        if self.point in EFFECT_POINTS:
            effect = shop.EFFECTS[self.kind].name
            return world.fleet.arm(EFFECT_POINTS[self.point], action, effect=effect)
        point = COMMIT_POINTS[self.point][self.transactional]
        return world.fleet.arm(point, action, step=shop.SAGAS[self.kind].nodes[0].name)


@dataclass
class Result:
    """What a cell came to, told from the sink's own ledger and from the execution's records.

    Attributes:
        first: How often the sink had it once the execution had ended or was parked.
        parked: Whether a person had to decide.
        record: The effect's status while it was parked, and how many calls were announced.
        count: How often the sink has it now that everyone who was lost has been heard of.
        zombie: Where the thawed worker's writes were refused.
        status: The execution's, in the end.
        payment: What the saga returned.
        paid: What the sink has.
        violations: What the verifier found.
        story: For a failed assertion.
    """

    first: int = 0
    parked: bool = False
    record: tuple[str, int] | None = None
    count: int = 0
    zombie: tuple[str, ...] = ()
    status: Status | None = None
    payment: Any = None
    paid: tuple[int, ...] = ()
    violations: tuple[str, ...] = ()
    story: str = ""

    def shown(self) -> str:
        """As in the table."""
        return f"parked ({self.first}), then {self.count}" if self.parked else str(self.count)


def run_wave(world: World, cells: Sequence[Cell]) -> dict[Cell, Result]:
    """Run cells that differ in their kind only, all at once."""
    world.start_workers(len(cells) + SURVIVORS)
    world.await_workers()
    faults = {cell: cell.arm(world) for cell in cells}
    handles = {cell: world.start(cell.kind, cell.reference) for cell in cells}
    victims = {cell: _lost(world, cell, faults[cell]) for cell in cells}
    results = {cell: Result() for cell in cells}
    for cell in cells:
        if cell.holds_all_of(world.database):
            # Nobody can take over, and it loses nothing: it goes on when it is thawed.
            world.fleet.wait_for(
                partial(_lease_expired, world, handles[cell]), 20, "its lease to expire"
            )
            victims[cell].thaw()
    for cell in cells:
        _settled(world, cell, handles[cell], results[cell])
    for cell in cells:
        if cell.loss is Loss.FREEZE:
            victims[cell].thaw()
    for cell in cells:
        if cell.loss is Loss.FREEZE:
            world.await_dropped(victims[cell], handles[cell].execution_id)
        _ended(world, cell, handles[cell], results[cell])
    return results


def _lost(world: World, cell: Cell, fault: Fault) -> Worker:
    """The worker that the cell has cost."""
    execution_id = world.id_of(cell.kind, cell.reference)
    for _ in range(10):
        try:
            return fault.victim(AGAIN_SECONDS)
        except AssertionError:
            # Its message went to a worker that was lost to another cell at that moment.
            world.dispatch(execution_id)
    raise AssertionError(f"{cell}: never lost\n{world.story(execution_id)}")


def _lease_expired(world: World, handle: Handle[int]) -> bool:
    return world.fp.engine.leases.state([handle.execution_id]) == [None]


def _settled(world: World, cell: Cell, handle: Handle[int], result: Result) -> None:
    """The others have done what they could; where they couldn't know, a person decides."""
    outcome = world.wait(handle)
    result.first = len(world.paid(cell.kind, cell.reference))
    result.parked = outcome.status is Status.PARKED
    if result.parked:
        effect = world.effect(handle.execution_id)
        assert effect is not None, world.story(handle.execution_id)
        result.record = (str(effect.status), effect.calls)
        result.violations += tuple(map(str, world.verify(handle.execution_id).violations))
        world.decide(handle.execution_id)
        world.wait(handle)


def _ended(world: World, cell: Cell, handle: Handle[int], result: Result) -> None:
    outcome = world.wait(handle)
    execution_id = handle.execution_id
    result.status, result.payment = outcome.status, outcome.result
    result.paid = tuple(world.paid(cell.kind, cell.reference))
    result.count = len(result.paid)
    refused = world.events(execution_id, *REFUSALS)
    result.zombie = tuple(dict.fromkeys(str(event.sink) for event in refused))
    report = world.verify(execution_id, settle=5.0)
    result.violations += tuple(map(str, report.violations))
    result.story = world.story(execution_id)
