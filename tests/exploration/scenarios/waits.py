"""Waiting for a time, a signal and a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from fencepost import Saga, Signal
from fencepost.records import Execution, Status
from fencepost.testing.explore import Budget, World
from tests.exploration.parts import Case, plain

GO = Signal("go", str)
FIVE = timedelta(seconds=5)


class Timer(Case):
    name = "timer"
    sagas = (Saga("timer", input=str).sleep("nap", FIVE).then(plain("after")),)
    budgets = (Budget(1, 1),)

    def judge_success(self, world: World, end: Execution) -> Iterator[str]:
        yield from super().judge_success(world, end)
        woken = next(c for c in world.executions.chain(end.execution_id) if c.kind == "woken")
        slept = woken.created_at - end.created_at
        if slept < FIVE:
            yield f"it slept for {slept}"


class Signalled(Case):
    """A user sends a signal at any point, and perhaps a second one, too."""

    def __init__(self, *, times: int, timeout: timedelta | None) -> None:
        self.name = f"signal-{times}" + ("-timeout" if timeout else "")
        self.times = times
        made = Saga("signalled", input=str).wait_for(GO, timeout=timeout)
        self.sagas = (made.then(plain("after")),)
        if timeout:
            self.ends = (Status.SUCCEEDED, Status.FAILED)
        self.result = "now1"
        self.budgets = (Budget(1, 0), Budget(0, 1))

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        for n in range(self.times):
            world.user(
                f"sends go {n + 1}",
                lambda n=n: world.people.signal(mine, GO, f"now{n + 1}"),  # type: ignore[misc]
            )

    def judge_success(self, world: World, end: Execution) -> Iterator[str]:
        if end.result not in [f"now{n + 1}" for n in range(self.times)]:
            yield f"{world.name_of(end)} gives {end.result!r}"


class TwoWaits(Case):
    """Two waits for the same signal: each takes one."""

    name = "two-waits-two-signals"
    sagas = (
        Saga("twice", input=str)
        .wait_for(GO, timeout=None, name="one")
        .wait_for(GO, timeout=None, name="two"),
    )
    budgets = (Budget(1, 0), Budget(0, 1))

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        first = world.user("sends go 1", lambda: world.people.signal(mine, GO, "one"))
        world.user("sends go 2", lambda: world.people.signal(mine, GO, "two"), after=first)

    def judge_success(self, world: World, end: Execution) -> Iterator[str]:
        if end.result != "two":
            yield f"the second wait took {end.result!r}"


class Approved(Case):
    """One says yes and one says no, at any point; the first answer is the answer."""

    name = "approval"
    sagas = (Saga("approved", input=str).approval("spend", timeout=None).then(plain("buy")),)
    ends = (Status.SUCCEEDED, Status.FAILED)
    budgets = (Budget(1, 0), Budget(0, 1))

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        world.user("says yes", lambda: world.people.approve(mine, "spend"))
        world.user("says no", lambda: world.people.reject(mine, "spend"))


SCENARIOS = (
    Timer(),
    Signalled(times=1, timeout=None),
    Signalled(times=2, timeout=None),
    Signalled(times=1, timeout=FIVE),
    TwoWaits(),
    Approved(),
)
