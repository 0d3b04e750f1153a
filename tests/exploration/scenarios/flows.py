"""Cancelling, deadlines, pauses, loops, pivots, error branches, continuing as new."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from fencepost import EffectKind, ErrorBranch, Failure, Saga, Step
from fencepost.records import EventName, Status
from fencepost.testing.explore import Budget, World
from tests.exploration.parts import NEVER, STOPS, Case, NoMoreError, acting, failing, plain, saga
from tests.exploration.sinks import Sink


def saved_after_cancel(world: World) -> Iterator[str]:
    """What was cancelled, as the audit trail has it, and has succeeded nevertheless."""
    for execution_id in world.started:
        events = world.executions.events([execution_id])
        cancelled = any(event.name == EventName.CANCELLED for event in events)
        if cancelled and world.end_of(execution_id).status is Status.SUCCEEDED:
            yield "it was cancelled, and has succeeded"


class Cancelled(Case):
    """A user cancels at any point."""

    name = "cancel"
    sagas = (saga("cancelled", plain("first"), plain("second")),)
    ends = (Status.SUCCEEDED, Status.COMPENSATED, Status.FAILED)
    budgets = (Budget(1, 1),)

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        world.user("cancels", lambda: world.people.cancel(mine))

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        yield from saved_after_cancel(world)


def a_minute(_what: str) -> timedelta:
    return timedelta(minutes=1)


class Late(Case):
    """A deadline passes while it sleeps, or just before."""

    name = "deadline"
    sink = Sink(EffectKind.FENCED)
    sinks = (sink,)
    sagas = (
        Saga("late", input=str, deadline=timedelta(seconds=4))
        .then(acting(sink, "pay"))
        .sleep("nap", a_minute),
    )
    ends = (Status.COMPENSATED, Status.FAILED)
    parks = True
    budgets = (Budget(1, 1),)


class LateLine(Case):
    """One that continues itself as new for ever ends with the deadline of its line."""

    name = "deadline-of-a-line"
    sagas = (
        Saga("line", input=str, deadline=timedelta(seconds=20))
        .sleep("nap", timedelta(seconds=6))
        .continue_as_new(plain("again")),
    )
    ends = (Status.FAILED,)
    budgets = (Budget(0, 1), Budget(1, 0))


class Paused(Case):
    """Paused at any point, and resumed at any later one."""

    name = "pause-resume"
    sagas = (saga("paused", plain("first"), plain("second")),)
    budgets = (Budget(1, 0), Budget(0, 1), Budget(1, 1, STOPS))

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        paused = world.user("pauses", lambda: world.people.pause(mine))
        world.user("resumes", lambda: world.people.resume(mine), after=paused)

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        paused = False
        for event in world.executions.events(world.started):
            if event.name in (EventName.PAUSED, EventName.RESUMED):
                paused = event.name == EventName.PAUSED
            elif event.name == EventName.LEASE_ACQUIRED and paused:
                yield "it was begun while it was paused"


class Loop(Case):
    name = "loop"
    sink = Sink(EffectKind.IDEMPOTENT)
    sinks = (sink,)
    budgets = (Budget(0, 1), Budget(1, 0))

    def __init__(self) -> None:
        def add(what: str) -> str:
            return what + "x"

        def short(what: str) -> bool:
            return len(what) < 3

        body: Saga[str, str] = Saga("body", input=str).then(Step(add, name="add", retry=NEVER))
        self.sagas = (Saga("looped", input=str).loop("again", body, again=short, max_visits=4),)
        self.result = "xxx"


class Pivot(Case):
    """After the pivot a cancel is refused, and the work goes on."""

    name = "pivot"
    sink = Sink(EffectKind.FENCED)
    sinks = (sink,)
    sagas = (
        Saga("pivoted", input=str)
        .then(acting(sink, "hold"))
        .pivot(plain("charge"))
        .then(plain("send")),
    )
    ends = (Status.SUCCEEDED, Status.COMPENSATED, Status.FAILED)
    parks = True
    budgets = (Budget(1, 0), Budget(0, 1))

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        world.user("cancels", lambda: world.people.cancel(mine))

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        end = world.end_of(world.started[0])
        steps = [c.step for c in world.executions.chain(end.execution_id) if c.kind == "step"]
        if "charge" in steps and end.status is not Status.SUCCEEDED:
            yield f"it has passed its pivot, and is {end.status}"


class Branch(Case):
    """An error branch saves it, after compensation; not if it was cancelled."""

    name = "error-branch"
    sink = Sink(EffectKind.FENCED)
    sinks = (sink,)
    ends = (Status.SUCCEEDED, Status.COMPENSATED, Status.FAILED)
    parks = True
    budgets = (Budget(1, 0), Budget(0, 1))

    def __init__(self) -> None:
        def save(failure: Failure[str]) -> str:
            return f"saved {failure.input}"

        made = saga("branched", acting(self.sink, "pay"), failing("fail"))
        branch: ErrorBranch[str, str] = ErrorBranch(Exception).finish(
            Step(save, name="save", retry=NEVER)
        )
        self.sagas = (made.on_error(branch),)
        self.result = "saved x"

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        world.user("cancels", lambda: world.people.cancel(mine))

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        yield from saved_after_cancel(world)


class Again(Case):
    """Continued as new once."""

    name = "continue-as-new"
    budgets = (Budget(1, 1),)

    def __init__(self) -> None:
        def less(what: str) -> str:
            if what == "x":
                raise NoMoreError("enough")
            return what[:-1]

        def stop(failure: Failure[str]) -> str:
            return failure.input

        step: Step[str, str] = Step(less, name="less", retry=NEVER)
        made = Saga("again", input=str).continue_as_new(step)
        branch: ErrorBranch[str, str] = ErrorBranch(NoMoreError).finish(
            Step(stop, name="stop", retry=NEVER)
        )
        self.sagas = (made.on_error(branch),)
        self.value = "xx"
        self.result = "x"


SCENARIOS = (Cancelled(), Late(), LateLine(), Paused(), Loop(), Pivot(), Branch(), Again())
