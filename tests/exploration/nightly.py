"""Larger configurations, explored at random: three workers, longer sagas, users who interfere."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from fencepost import ChildResult, Collect, EffectKind, FirstFailure, Limit, Saga, Step
from fencepost.records import Execution, Status
from fencepost.testing.explore import Scenario, World
from tests.exploration.parts import Case, acting, failing, plain, saga
from tests.exploration.scenarios.families import choosy, first, good_and_bad, two
from tests.exploration.scenarios.waits import GO
from tests.exploration.sinks import Sink

ANY_END = (Status.SUCCEEDED, Status.COMPENSATED, Status.FAILED)
SAFE = (
    EffectKind.TRANSACTIONAL,
    EffectKind.FENCED,
    EffectKind.IDEMPOTENT,
    EffectKind.RECONCILABLE,
)
"""Kinds that need nobody when an answer is lost."""


def several(what: str) -> list[str]:
    return [f"{what}{number}" for number in range(3)]


class Large(Case):
    workers = 3


class Long(Large):
    """An effect of each kind, one after the other."""

    def __init__(self, *, fails: bool) -> None:
        self.name = "long-undone" if fails else "long"
        self.sinks = [Sink(kind, f"sink-{kind}") for kind in SAFE]
        steps = [acting(sink, f"on-{sink.kind}") for sink in self.sinks]
        self.sagas = (saga(self.name, *steps, failing("last") if fails else plain("last")),)
        self.ends = (Status.COMPENSATED,) if fails else (Status.SUCCEEDED,)


class Fan(Large):
    """Three children that act, two at a time."""

    name = "fan"

    def __init__(self) -> None:
        self.sinks = (Sink(EffectKind.FENCED),)
        child = saga("fan-child", acting(self.sinks[0], "pay"), plain("then"))
        made = Saga("fan-parent", input=str).map(
            child, over=several, name="each", max_concurrency=2
        )
        self.sagas = (made.then(first),)
        self.result = "x0"


class FanFails(Large):
    """Two children that act, of which one fails."""

    name = "fan-fails"
    ends = (Status.COMPENSATED, Status.FAILED)
    parks = True  # where a child is stopped between its effect and its checkpoint

    def __init__(self) -> None:
        self.sinks = (Sink(EffectKind.IDEMPOTENT),)
        child = saga("fails-child", acting(self.sinks[0], "pay"), choosy("choose"))
        made = Saga("fails-parent", input=str).map(
            child, over=good_and_bad, name="each", join=FirstFailure()
        )
        self.sagas = (made.then(first),)


class Nested(Large):
    """A grandchild that acts, under a parent that fails, or is cancelled first."""

    name = "nested"
    ends = (Status.COMPENSATED, Status.FAILED)
    parks = True

    def __init__(self) -> None:
        self.sinks = (Sink(EffectKind.FENCED),)
        leaf = saga("nested-leaf", acting(self.sinks[0], "pay"))
        middle = Saga("nested-middle", input=str).child(leaf, name="leaf").then(plain("between"))
        top = Saga("nested-top", input=str).child(middle, name="middle").then(failing("fail"))
        self.sagas = (top,)

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        world.user("cancels", lambda: world.people.cancel(mine))


class Crowd(Large):
    """Three executions of one limited step."""

    name = "crowd"

    def __init__(self) -> None:
        self.sinks = (Sink(EffectKind.RECONCILABLE),)
        limit = Limit(name="counter", concurrency=1)
        self.sagas = (saga("crowd", acting(self.sinks[0], "pay", limit=limit), plain("then")),)

    def begin(self, world: World) -> None:
        super().begin(world)
        for what in ("y", "z"):
            world.start(self.sagas[0], what, key=what)

    def judge_success(self, world: World, end: Execution) -> Iterator[str]:
        if end.result != end.input:
            yield f"{world.name_of(end)} of {end.input} gives {end.result!r}"


class Journey(Large):
    """Acts, sleeps, waits for a signal, acts again; paused, resumed and cancelled meanwhile."""

    name = "journey"
    ends = ANY_END
    parks = True

    def __init__(self) -> None:
        self.sinks = (Sink(EffectKind.FENCED, "hold"), Sink(EffectKind.IDEMPOTENT, "charge"))
        hold, charge = self.sinks
        made = Saga("journey", input=str).then(acting(hold, "hold"))
        made = made.sleep("nap", timedelta(seconds=5)).wait_for(GO, timeout=timedelta(minutes=1))
        self.sagas = (made.then(acting(charge, "charge")).then(plain("last")),)

    def begin(self, world: World) -> None:
        super().begin(world)
        mine, people = world.started[0], world.people
        world.user("sends go", lambda: people.signal(mine, GO, "x"))
        paused = world.user("pauses", lambda: people.pause(mine))
        resumed = world.user("resumes", lambda: people.resume(mine), after=paused)
        world.user("cancels", lambda: people.cancel(mine), after=resumed)


class Gathered(Large):
    """Children of which some may fail, and a parent that goes on, and then fails, too."""

    name = "gathered"
    ends = (Status.COMPENSATED,)
    parks = True

    def __init__(self) -> None:
        self.sinks = (Sink(EffectKind.FENCED, "each"), Sink(EffectKind.FENCED, "all"))
        child = saga("gathered-child", acting(self.sinks[0], "pay"), plain("then"))
        made = Saga("gathered-parent", input=str).map(child, over=two, name="each", join=Collect())

        def name_of(_results: list[ChildResult[str]]) -> str:
            return "x"

        gathered: Step[list[ChildResult[str]], str] = Step(name_of, name="gathered")
        self.sagas = (
            made.then(gathered).then(acting(self.sinks[1], "close")).then(failing("fail")),
        )


SCENARIOS: tuple[Scenario, ...] = (
    Long(fails=False),
    Long(fails=True),
    Fan(),
    FanFails(),
    Nested(),
    Crowd(),
    Journey(),
    Gathered(),
)
