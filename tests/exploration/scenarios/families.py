"""Children: joined once, within their cap, stopped and undone when their parent says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from fencepost import (
    ChildResult,
    Collect,
    EffectKind,
    FirstFailure,
    Quorum,
    Saga,
    Step,
    StepContext,
)
from fencepost.records import Execution, Status
from fencepost.testing.explore import Budget, World
from tests.exploration.parts import (
    CRASHES,
    MESSAGES,
    NEVER,
    STOPS,
    Case,
    NoMoreError,
    acting,
    failing,
    plain,
    saga,
)
from tests.exploration.sinks import Sink

LONG = timedelta(hours=1)


def one(what: str) -> list[str]:
    return [what]


def two(what: str) -> list[str]:
    return [f"{what}1", f"{what}2"]


def good_and_bad(_what: str) -> list[str]:
    return ["good", "bad"]


def first_of(values: list[str]) -> str:
    return values[0]


first: Step[list[str], str] = Step(first_of, name="first-of", retry=NEVER)


def choosy(name: str) -> Step[str, str]:
    """A step that fails for the bad one."""

    def body(what: str) -> str:
        if what == "bad":
            raise NoMoreError("it is bad")
        return what

    return Step(body, name=name, retry=NEVER)


class MapOfOne(Case):
    name = "map-of-one"
    sagas = (
        Saga("p1", input=str).map(saga("c1", plain("leaf")), over=one, name="each").then(first),
    )
    budgets = (Budget(1, 0), Budget(0, 1), Budget(1, 1, STOPS))


class OneChild(Case):
    """A child that acts, under a parent that fails."""

    name = "child-undone"
    sink = Sink(EffectKind.FENCED)
    sinks = (sink,)
    child = saga("leaf-undone", acting(sink, "pay"))
    sagas = (Saga("parent-undone", input=str).child(child, name="each").then(failing("fail")),)
    ends = (Status.COMPENSATED,)
    budgets = (Budget(0, 1),)


class CapOfOne(Case):
    """Two children, one at a time."""

    name = "map-of-two-cap-one"
    budgets = (Budget(0, 1), Budget(1, 0))

    def __init__(self) -> None:
        self.world: World | None = None
        self.most = 0

        def leaf(ctx: StepContext, what: str) -> str:
            self.look()
            return what

        child = saga("c2", Step(leaf, name="leaf", retry=NEVER))
        self.sagas = (
            Saga("p2", input=str).map(child, over=two, name="each", max_concurrency=1).then(first),
        )
        self.result = "x1"

    def look(self) -> None:
        """How many children have a place now."""
        assert self.world is not None
        placed = [
            e
            for e in self.world.all_executions()
            if e.parent_id is not None and e.status in (Status.ACTIVE, Status.WAITING)
        ]
        self.most = max(self.most, len(placed))

    def begin(self, world: World) -> None:
        self.world, self.most = world, 0
        super().begin(world)

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        if self.most > 1:
            yield f"{self.most} children were under way at once, and the cap is 1"


class Joined(Case):
    """Two children, one of which fails, and each way of joining them."""

    def __init__(self, join: object, ends: Sequence[Status], name: str, *, acts: bool) -> None:
        self.name = f"join-{name}"
        self.ends = ends
        self.parks = acts  # where a child is stopped between its effect and its checkpoint
        self.sink = Sink(EffectKind.FENCED)
        self.sinks = (self.sink,)
        steps = [acting(self.sink, "pay")] if acts else []
        child = saga(f"c-{name}", *steps, choosy("choose"))
        parent = Saga(f"p-{name}", input=str)
        made = parent.map(child, over=good_and_bad, name="each", join=join)  # type: ignore[call-overload]
        self.sagas = (made.then(summary if isinstance(join, Collect) else first),)
        self.result = "good"
        self.budgets = (Budget(0, 1, STOPS | MESSAGES),)


def summarize(results: list[ChildResult[str]]) -> str:
    return "good" if [r.succeeded for r in results] == [True, False] else "other"


summary: Step[list[ChildResult[str]], str] = Step(summarize, name="summary", retry=NEVER)


class QuorumOfGood(Case):
    """Two good children, of which one is enough: the other is stopped, and nothing stands."""

    name = "quorum-stops"
    parks = True
    sink = Sink(EffectKind.FENCED)
    sinks = (sink,)
    child = saga("c-stop", acting(sink, "pay"), plain("then"))
    sagas = (
        Saga("p-stop", input=str).map(child, over=two, name="each", join=Quorum(1)).then(first),
    )
    budgets = (Budget(1, 0), Budget(0, 1, CRASHES))

    def judge_success(self, world: World, end: object) -> Iterator[str]:
        return iter(())


class QuorumSleeper(Case):
    """Two children, of which one is enough: the parent doesn't wait for the one that sleeps."""

    name = "quorum-sleeper"
    budgets = (Budget(1, 0), Budget(0, 1, STOPS))

    def __init__(self) -> None:
        def nap(what: str) -> timedelta:
            return LONG if what == "bad" else timedelta(0)

        child = Saga("c-sleeper", input=str).sleep("nap", nap).then(plain("then"))
        parent = Saga("p-sleeper", input=str)
        self.sagas = (
            parent.map(child, over=good_and_bad, name="each", join=Quorum(1)).then(first),
        )
        self.result = "good"

    def judge_success(self, world: World, end: Execution) -> Iterator[str]:
        yield from super().judge_success(world, end)
        took = world.executions.chain(end.execution_id)[-1].created_at - end.created_at
        if took >= LONG:
            yield "it has waited for a child that it didn't need"


class CancelledFamily(Case):
    """A parent is cancelled at any point, with a child that acts."""

    name = "cancel-family"
    sink = Sink(EffectKind.FENCED)
    sinks = (sink,)
    child = saga("c-cancel", acting(sink, "pay"))
    sagas = (Saga("p-cancel", input=str).child(child, name="each").then(plain("last")),)
    ends = (Status.SUCCEEDED, Status.COMPENSATED, Status.FAILED)
    parks = True
    budgets = (Budget(1, 0), Budget(0, 1, CRASHES))

    def __init__(self) -> None:
        self.before: dict[UUID, int] = {}

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        self.before.clear()
        turn_back = world.executions.turn_back

        def seen(*args: Any, **kwargs: Any) -> Execution:
            turned = turn_back(*args, **kwargs)
            for each in world.all_executions():
                self.before[each.execution_id] = len(world.executions.chain(each.execution_id))
            return turned

        # In one step with the store's own, so that nothing comes in between.
        world.executions.turn_back = seen  # type: ignore[method-assign]
        world.user("cancels", lambda: world.people.cancel(mine))

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        for each in world.all_executions():
            chain = world.executions.chain(each.execution_id)
            after = chain[self.before.get(each.execution_id, len(chain)) :]
            if any(entry.kind == "step" for entry in after):
                yield f"{world.name_of(each)} has gone on after its cancel"


class CancelledWhileUndoing(Case):
    """A user cancels at any point, also while a child of a child is told to undo its work."""

    name = "cancel-while-undoing"
    sink = Sink(EffectKind.FENCED)
    sinks = (sink,)
    leaf = saga("undoing-leaf", acting(sink, "pay"))
    middle = Saga("undoing-middle", input=str).child(leaf, name="leaf").then(failing("fail"))
    sagas = (Saga("undoing-top", input=str).child(middle, name="middle").then(plain("last")),)
    ends = (Status.COMPENSATED, Status.FAILED)
    parks = True
    budgets = (Budget(0, 0),)

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        world.user("cancels", lambda: world.people.cancel(mine))


FAILED = (Status.FAILED, Status.COMPENSATED)
SCENARIOS = (
    MapOfOne(),
    OneChild(),
    CapOfOne(),
    Joined(FirstFailure(), FAILED, "first-failure", acts=True),
    Joined(Quorum(1), (Status.SUCCEEDED,), "quorum", acts=False),
    Joined(Quorum(2), FAILED, "quorum-failed", acts=False),
    Joined(Collect(), (Status.SUCCEEDED,), "collect", acts=False),
    QuorumOfGood(),
    QuorumSleeper(),
    CancelledFamily(),
    CancelledWhileUndoing(),
)
