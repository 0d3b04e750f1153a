"""An agent loop is lost at each crash point that it comes to, one after the other."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from fencepost import EffectKind, Status, faults
from fencepost.engine.registry import Registry
from fencepost.ports import LeaseStore
from fencepost.stores.memory import MemoryLeaseStore
from fencepost.verify import verify
from tests.support.inline import Died, Inline
from tests.unit.agents.support import Agent, careful

LOOP = ("step.", "commit.", "effect.", "fence.")
TURNS = 3
KINDS = [kind for kind in EffectKind if kind is not EffectKind.TRANSACTIONAL]
SEED = 4


class Fleet(Inline):
    """A zombie's clock has gone on while it stood still, as a monotonic clock does."""

    def now(self) -> float:
        return time.monotonic() + getattr(self, "_skipped", 0.0)

    def __init__(self, url: str, *, aware: bool) -> None:
        self.aware = aware
        super().__init__(url, [], clock=self.now if aware else time.monotonic)

    def hire(self, agent: Agent) -> None:
        """From now on, this is the agent that the workers know."""
        self.engine.registry = Registry([agent.task])

    def _lease_store(self, redis_url: str | None) -> LeaseStore:
        holder = self.now if self.aware else time.monotonic
        return MemoryLeaseStore(clock=self.now, holder_clock=holder)


class Point:
    """A crash point as it was reached: `str` names it."""

    def __init__(self, point: str, facts: dict[str, Any]) -> None:
        self.name = point
        self.facts = facts

    def __str__(self) -> str:
        step = self.facts.get("step", self.facts.get("effect", ""))
        return f"{self.name} {step}"

    @property
    def answer_in_hand(self) -> bool:
        """Whether the model had answered, and nobody had written it down."""
        before_record = self.name in ("step.after", "commit.before")
        return before_record and self.facts.get("step") == "ask_model"


@pytest.fixture
def fleet(sqlite_url: str, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(sqlite_url, aware=getattr(request, "param", True))
    yield fleet
    fleet.close()


def losing(
    fleet: Fleet, agent: Agent, at: dict[int, Callable[[], None]]
) -> tuple[UUID, list[Point]]:
    """Run the agent, and do something when the n-th crash point of the loop is reached."""
    fleet.hire(agent)
    reached: list[Point] = []

    def hook(point: str, facts: dict[str, Any]) -> None:
        if point.startswith(LOOP):
            reached.append(Point(point, facts))
            doing = at.pop(len(reached) - 1, None)
            if doing is not None:
                doing()

    losses = len(at)
    faults.install(hook)
    try:
        execution_id = fleet.run(agent.task, "refund my order A1")
        for _ in range(losses):
            fleet.expire_leases()
            fleet.drain()
    finally:
        faults.install(None)
    return execution_id, reached


def die() -> None:
    raise Died


def check(
    fleet: Fleet, agent: Agent, execution_id: UUID, *, extra: tuple[int, int], where: str
) -> None:
    """One refund, and not one model call more than had to be."""
    row = fleet.row(execution_id)
    if row.status is Status.PARKED:
        assert len(agent.bank.booked) <= 1, where
        assert "was announced, and not confirmed" in (row.parked_reason or ""), where
        return
    assert row.status is Status.SUCCEEDED, f"{where}: {row}"
    assert agent.bank.booked == [500], where
    assert row.result["content"] == "refunded 500", where
    assert (row.result["turns"], row.result["tool_calls"]) == (TURNS, 2), where
    least, most = extra
    assert TURNS + least <= len(agent.model.asked) <= TURNS + most, where


def everywhere(fleet: Fleet, kind: EffectKind, *, frozen: bool) -> list[str]:
    """Lose the loop at each of its points; returns those after which it was parked."""
    first = Agent(careful, kind=kind)
    _, points = losing(fleet, first, {})
    assert len({str(point) for point in points}) >= 20
    parked = []

    def takeover() -> None:
        fleet.expire_leases()
        for execution in fleet.live():
            fleet.dispatch(execution)
        fleet.drain()

    for number, point in enumerate(points):
        agent = Agent(careful, kind=kind)
        execution_id, _ = losing(fleet, agent, {number: takeover if frozen else die})
        unrecorded = 1 if point.answer_in_hand else 0
        extra = (unrecorded, unrecorded if fleet.aware else 1)
        check(fleet, agent, execution_id, extra=extra, where=f"{number}: {point}")
        if fleet.row(execution_id).status is Status.PARKED:
            parked.append(str(point))
    return parked


# Only where nobody can know does anybody have to be asked.
UNSURE = ["effect.after-intent refund", "effect.applied refund", "effect.before-conclusion "]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frozen", [False, True], ids=["killed", "frozen"])
def test_nothing_is_repeated_wherever_the_loop_is_lost(
    fleet: Fleet, kind: EffectKind, frozen: bool, sqlite_url: str
) -> None:
    parked = everywhere(fleet, kind, frozen=frozen)
    assert parked == (UNSURE if kind is EffectKind.AT_MOST_ONCE else [])
    assert verify(sqlite_url).ok


@pytest.mark.parametrize("fleet", [False], indirect=True)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not EffectKind.RECONCILABLE])
def test_a_zombie_whose_clock_stood_still_as_well_repeats_no_effect(
    fleet: Fleet, kind: EffectKind, sqlite_url: str
) -> None:
    """As in a suspended machine. It may ask the model once more, and what it hears is lost.

    A reconcilable sink needs a bound of its own on how late a call can land (`in_flight`): it
    neither dedupes nor checks fences, and here nothing stops the zombie's call.
    """
    parked = everywhere(fleet, kind, frozen=True)
    assert parked == (UNSURE if kind is EffectKind.AT_MOST_ONCE else [])
    assert verify(sqlite_url).ok


def test_losing_it_twice_repeats_nothing_either(fleet: Fleet, sqlite_url: str) -> None:
    first = Agent(careful)
    length = len(losing(fleet, first, {})[1])
    draw = random.Random(SEED)
    for number in range(30):
        one, two = sorted(draw.sample(range(length + 8), 2))
        # The second owner of a fenced one may be lost while it raises the fence.
        agent = Agent(careful, kind=(EffectKind.IDEMPOTENT, EffectKind.FENCED)[number % 2])
        execution_id, reached = losing(fleet, agent, {one: die, two: die})
        lost = [reached[n] for n in (one, two) if n < len(reached)]
        extra = sum(point.answer_in_hand for point in lost)
        where = f"{number}: {one}, {two} (seed {SEED})"
        check(fleet, agent, execution_id, extra=(extra, extra), where=where)
    assert verify(sqlite_url).ok
