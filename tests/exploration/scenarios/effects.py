"""One effect of each kind: landed once or parked, and nothing of it stands after an undo."""

from __future__ import annotations

from fencepost import EffectKind, Limit, TaskContext, task
from fencepost.records import Status
from fencepost.testing.explore import Budget, Fault, World
from tests.exploration.parts import CRASHES, Case, acting, failing, plain, saga
from tests.exploration.sinks import Sink

DOUBTFUL = (EffectKind.AT_MOST_ONCE,)
"""Kinds that need a person when an answer is lost."""


class OneEffect(Case):
    """One effect, then a step that succeeds."""

    def __init__(self, kind: EffectKind) -> None:
        self.name = f"effect-{kind}"
        self.sink = Sink(kind)
        self.sinks = (self.sink,)
        self.sagas = (saga(f"do-{kind}", acting(self.sink, "pay")),)
        self.parks = kind in DOUBTFUL
        self.budgets = (Budget(1, 1), Budget(0, 2, CRASHES | {Fault.LOSE_ANSWER}))


class OneEffectUndone(Case):
    """One effect, then a step that fails."""

    def __init__(self, kind: EffectKind) -> None:
        self.name = f"undo-{kind}"
        self.sink = Sink(kind)
        self.sinks = (self.sink,)
        self.sagas = (saga(f"undo-{kind}", acting(self.sink, "pay"), failing("fail")),)
        self.parks = kind in DOUBTFUL
        self.ends = (Status.COMPENSATED,)
        self.budgets = (Budget(1, 1),)


class FailsAfterEffect(Case):
    """A step that has landed something and then fails is for a person."""

    name = "fails-after-effect"
    sink = Sink(EffectKind.IDEMPOTENT)
    sinks = (sink,)
    sagas = (saga("landed", acting(sink, "pay", fails=True)),)
    parks = True
    ends = (Status.PARKED,)
    budgets = (Budget(1, 1),)


class CancelledEffect(Case):
    """A user cancels at any point; nothing of it may stand then, or it is parked."""

    def __init__(self, kind: EffectKind) -> None:
        self.name = f"cancel-{kind}"
        self.sink = Sink(kind)
        self.sinks = (self.sink,)
        self.sagas = (saga(f"cancel-{kind}", acting(self.sink, "pay"), plain("then")),)
        self.parks = kind is not EffectKind.TRANSACTIONAL
        self.ends = (Status.SUCCEEDED, Status.COMPENSATED, Status.FAILED)
        self.budgets = (Budget(1, 0), Budget(2, 1, frozenset({Fault.FREEZE})))

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        world.user("cancels", lambda: world.people.cancel(mine))


class Limited(Case):
    """A limited step: one at a time, and it comes to its turn."""

    name = "limited"
    sink = Sink(EffectKind.IDEMPOTENT)
    sinks = (sink,)
    limit = Limit(name="bank", concurrency=1)
    sagas = (saga("limited", acting(sink, "pay", limit=limit)),)
    budgets = (Budget(1, 1),)


class Task(Case):
    """A durable task with one effect and a recorded step."""

    name = "durable-task"
    sink = Sink(EffectKind.IDEMPOTENT)
    sinks = (sink,)
    budgets = (Budget(1, 1),)

    def __init__(self) -> None:
        sink, first = self.sink, plain("first")

        @task(name="body", effects=(sink.do,))
        def body(ctx: TaskContext, what: str) -> str:
            ctx.perform(sink.do, f"pay.1/{ctx.run(first, what)}")
            return what

        self.sagas = (body,)


KINDS = tuple(EffectKind)
SCENARIOS = (
    *(OneEffect(kind) for kind in KINDS),
    *(OneEffectUndone(kind) for kind in KINDS),
    *(CancelledEffect(kind) for kind in KINDS),
    FailsAfterEffect(),
    Limited(),
    Task(),
)
