"""One effect of each kind: landed once or parked, and nothing of it stands after an undo."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from fencepost import EffectKind, Limit, Saga, Step, StepContext, TaskContext, task
from fencepost.effects.model import UNKNOWN_OUTCOME
from fencepost.records import Execution, Status
from fencepost.testing.explore import Budget, Fault, World
from tests.exploration.parts import (
    CRASHES,
    NEVER,
    STOPS,
    Case,
    NoMoreError,
    acting,
    failing,
    plain,
    saga,
)
from tests.exploration.sinks import UNDO, Sink

FREEZES = frozenset({Fault.FREEZE})
FEW = (Budget(1, 0), Budget(0, 1))
DEDUPING = (EffectKind.FENCED, EffectKind.IDEMPOTENT)
"""Kinds of which everything is explored up to one preemption and one fault."""
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
        self.budgets = (Budget(1, 1), Budget(0, 2, STOPS | {Fault.LOSE_ANSWER}))

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        for parked in world.parked():
            records = world.effects.of_execution(parked.execution_id)
            if all(record.status not in UNKNOWN_OUTCOME for record in records):
                yield "it is parked, and nothing is unknown"


class OneEffectUndone(Case):
    """One effect, then a step that fails."""

    def __init__(self, kind: EffectKind) -> None:
        self.name = f"undo-{kind}"
        self.sink = Sink(kind)
        self.sinks = (self.sink,)
        self.sagas = (saga(f"undo-{kind}", acting(self.sink, "pay"), failing("fail")),)
        self.parks = kind in DOUBTFUL
        self.ends = (Status.COMPENSATED,)
        self.budgets = FEW if kind not in DEDUPING else (Budget(1, 1),)


class FailsAfterEffect(Case):
    """A step that has landed something and then fails is for a person."""

    name = "fails-after-effect"
    sink = Sink(EffectKind.IDEMPOTENT)
    sinks = (sink,)
    sagas = (saga("landed", acting(sink, "pay", fails=True)),)
    parks = True
    ends = (Status.PARKED,)
    budgets = (Budget(1, 1),)


class FailsOnce(Case):
    """A step that fails the first time, after its effect: parked, unless it was taken over."""

    name = "fails-once"
    sink = Sink(EffectKind.IDEMPOTENT)
    sinks = (sink,)
    parks = True
    budgets = (Budget(1, 1, CRASHES),)

    def __init__(self) -> None:
        self.runs = 0

        def body(ctx: StepContext, what: str) -> str:
            self.runs += 1
            mine = self.runs
            ctx.perform(self.sink.do, f"pay.1/{what}")
            if mine == 1:
                raise NoMoreError("the first time it fails")
            return what

        step: Step[str, str] = Step(body, name="pay", effects=(self.sink.do,), retry=NEVER)
        self.sagas = (Saga("once", input=str).then(step),)

    def begin(self, world: World) -> None:
        self.runs = 0
        super().begin(world)

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        for parked in world.parked():
            if any(entry.kind == "step" for entry in world.executions.chain(parked.execution_id)):
                yield "it is parked over a step that has succeeded"


class CancelledEffect(Case):
    """A user cancels at any point; nothing of it may stand then, or it is parked."""

    def __init__(self, kind: EffectKind) -> None:
        self.name = f"cancel-{kind}"
        self.sink = Sink(kind)
        self.sinks = (self.sink,)
        self.sagas = (saga(f"cancel-{kind}", acting(self.sink, "pay"), plain("then")),)
        self.parks = kind is not EffectKind.TRANSACTIONAL
        self.ends = (Status.SUCCEEDED, Status.COMPENSATED, Status.FAILED)
        self.budgets = FEW if kind not in DEDUPING else (Budget(1, 0), Budget(1, 1, FREEZES))

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        world.user("cancels", lambda: world.people.cancel(mine))


class Decided(Case):
    """Cancelled, parked, and a person who looks decides that nothing has landed.

    A worker that was frozen before its call wakes after that.
    """

    name = "decided"
    sink = Sink(EffectKind.FENCED)
    sinks = (sink,)
    sagas = (saga("decided", acting(sink, "pay"), plain("then")),)
    ends = (Status.SUCCEEDED, Status.COMPENSATED, Status.FAILED)
    parks = True
    budgets = (Budget(0, 1, FREEZES),)

    def begin(self, world: World) -> None:
        super().begin(world)
        mine = world.started[0]
        cancelled = world.user("cancels", lambda: world.people.cancel(mine))
        world.user("decides", lambda: self.decide(world, mine), after=cancelled)

    def decide(self, world: World, mine: UUID) -> None:
        """Resolve what is in doubt, and leave the step, if nothing is at the sink."""
        if self.sink.landed():
            return
        for record in world.effects.of_execution(mine):
            if record.status in UNKNOWN_OUTCOME:
                said = {"by": "ada", "why": "it isn't at the bank"}
                world.effects.resolve(record.sink, record.key, landed=False, result=None, **said)
        world.people.skip(mine)


class ChangesItsMind(Case):
    """A step whose second run doesn't come to the effect that its first may have landed."""

    name = "changes-its-mind"
    sink = Sink(EffectKind.IDEMPOTENT)
    sinks = (sink,)
    parks = True
    budgets = (Budget(1, 1),)

    def __init__(self) -> None:
        self.runs = 0

        def body(ctx: StepContext, what: str) -> str:
            self.runs += 1
            if self.runs == 1:
                ctx.perform(self.sink.do, f"pay.1/{what}")
            return what if self.runs == 1 else "nothing"

        step: Step[str, str] = Step(body, name="pay", effects=(self.sink.do,), retry=NEVER)
        self.sagas = (Saga("mind", input=str).then(step),)

    def begin(self, world: World) -> None:
        self.runs = 0
        super().begin(world)

    def judge_success(self, world: World, end: Execution) -> Iterator[str]:
        if end.result == "nothing" and self.sink.landed():
            yield "it says that it did nothing, and something stands"


LATE = "late"


class SharedKey(Case):
    """Two executions with one business key at a sink, one of which undoes it.

    The other may be given what the first has done, but not once that is being undone.
    """

    name = "shared-key"
    sink = Sink(EffectKind.IDEMPOTENT)
    sinks = (sink,)
    ends = (Status.SUCCEEDED, Status.COMPENSATED, Status.FAILED)
    budgets = (Budget(1, 0), Budget(0, 1, CRASHES))

    def __init__(self) -> None:
        sink = self.sink

        def undo(ctx: StepContext, what: str) -> None:
            ctx.perform(sink.undo, "pay.1/key")

        def do(ctx: StepContext, what: str) -> str:
            ctx.perform(sink.do, "pay.1/key", key="key")
            return LATE if any(entry.act == UNDO for entry in sink.landed()) else what

        back: Step[str, None] = Step(undo, name="unpay", effects=(sink.undo,))
        step: Step[str, str] = Step(
            do, name="pay", effects=(sink.do,), compensate=back, retry=NEVER
        )
        self.sagas = (saga("fails", step, failing("fail")), saga("builds", step))

    def begin(self, world: World) -> None:
        super().begin(world)
        world.start(self.sagas[1], "y", key="two")

    def judge(self, world: World) -> Iterator[str]:
        yield from super().judge(world)
        [fails, _builds] = world.started
        record = world.effects.find(self.sink.name, "key")
        if record is None or record.execution_id != fails:
            return  # it was given what the other has done, and undoes what isn't its own
        for execution_id in world.started:
            if any(entry.result == LATE for entry in world.executions.chain(execution_id)):
                yield "one was given what had been undone"

    def judge_success(self, world: World, end: Execution) -> Iterator[str]:
        return iter(())


class LimitOfOne(Case):
    """Two executions of a step that runs once at a time."""

    name = "limit-of-one"
    budgets = (Budget(1, 0), Budget(0, 1, CRASHES))

    def __init__(self) -> None:
        self.world: World | None = None
        self.inside: dict[UUID, int] = {}
        self.most = 0

        def body(ctx: StepContext, what: str) -> str:
            assert self.world is not None
            self.inside[ctx.execution_id] = ctx.token.epoch
            owned = {e.execution_id: e for e in self.world.all_executions()}
            # What was taken over isn't counted, though its old body may run on.
            now = [
                i for i, epoch in self.inside.items() if owned[i].epoch == epoch and owned[i].owner
            ]
            self.most = max(self.most, len(now))
            self.world.point("is inside")
            if self.inside.get(ctx.execution_id) == ctx.token.epoch:
                del self.inside[ctx.execution_id]
            return "x"

        limit = Limit(name="one", concurrency=1)
        self.sagas = (Saga("limited", input=str).then(Step(body, name="in", limit=limit)),)
        self.result = "x"

    def begin(self, world: World) -> None:
        self.world, self.most = world, 0
        self.inside.clear()
        super().begin(world)
        world.start(self.sagas[0], "y", key="two")

    def judge_ends(self, world: World) -> Iterator[str]:
        yield from super().judge_ends(world)
        if self.most > 1:
            yield f"{self.most} ran at once, and the limit is 1"


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
    FailsOnce(),
    Decided(),
    ChangesItsMind(),
    SharedKey(),
    LimitOfOne(),
    Limited(),
    Task(),
)
