"""Two steps, one compensation, a poisonous step."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost import EffectKind, RetryPolicy, Saga, Step, StepContext
from fencepost.records import EventName, Execution, Status
from fencepost.testing.explore import Budget, World
from tests.exploration.parts import STOPS, Case, acting, failing, plain, saga
from tests.exploration.sinks import Sink


class TwoSteps(Case):
    name = "two-steps"
    sagas = (saga("two", plain("first"), plain("second")),)
    budgets = (Budget(2, 1), Budget(0, 2))

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        for event in world.executions.events(world.started):
            if event.name == EventName.LEASE_LOST and event.epoch == event.current_epoch:
                yield "an owner was refused, though nobody has taken it over"


class OneCompensation(Case):
    name = "one-compensation"
    sink = Sink(EffectKind.FENCED)
    sinks = (sink,)
    sagas = (saga("back", acting(sink, "pay"), failing("fail")),)
    ends = (Status.COMPENSATED,)
    budgets = (Budget(1, 1), Budget(0, 2, STOPS))


class TwoCompensations(Case):
    """Undone newest first, each once."""

    name = "two-compensations"
    sink = Sink(EffectKind.FENCED)
    sinks = (sink,)
    sagas = (saga("back2", acting(sink, "pay"), acting(sink, "ship"), failing("fail")),)
    ends = (Status.COMPENSATED,)
    budgets = (Budget(0, 1),)

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        undone = [e.what for e in self.sink.landed() if e.act == "undo"]
        if undone != ["ship.1/x", "pay.1/x"]:
            yield f"undone were {undone}"


class Poison(Case):
    """A step that kills its worker each time."""

    name = "poison"
    parks = True
    max_recoveries = 2
    ends = (Status.PARKED,)
    budgets = (Budget(1, 0), Budget(0, 1))

    def __init__(self) -> None:
        self.world: World | None = None
        self.begun = 0

        def kill(_ctx: StepContext, what: str) -> str:
            assert self.world is not None
            self.begun += 1
            self.world.perish()
            return what

        self.sagas = (Saga("poison", input=str).then(Step(kill, name="kill")),)

    def begin(self, world: World) -> None:
        self.world, self.begun = world, 0
        super().begin(world)

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        if self.begun > self.max_recoveries + 2:
            yield f"it was begun {self.begun} times"

    def judge_success(self, world: World, end: Execution) -> Iterator[str]:
        yield f"{world.name_of(end)} can't succeed"


class Flaky(Case):
    """A step that fails twice, and is tried again; a third failure would be for good."""

    name = "flaky"
    budgets = (Budget(1, 1),)

    def __init__(self) -> None:
        def body(ctx: StepContext, what: str) -> str:
            if ctx.attempt < 3:
                raise ConnectionError("not yet")
            return what

        step: Step[str, str] = Step(body, name="call", retry=RetryPolicy(attempts=3))
        self.sagas = (Saga("flaky", input=str).then(step),)

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        events = world.executions.events(world.started)
        failed = [e.details["attempt"] for e in events if e.name == EventName.ATTEMPT_FAILED]
        if failed != [1, 2]:
            yield f"attempts {failed} failed"


SCENARIOS = (Flaky(), TwoSteps(), OneCompensation(), TwoCompensations(), Poison())
