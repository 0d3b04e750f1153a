"""What scenarios are made of: steps that act on a sink, and the judging of a whole run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fencepost import EffectKind, Limit, RetryPolicy, Saga, Step, StepContext
from fencepost.records import Execution, Status
from fencepost.testing.explore import Budget, Fault, Scenario, World
from tests.exploration.sinks import Sink

NEVER = RetryPolicy(attempts=1)

CRASHES = frozenset({Fault.KILL, Fault.FREEZE, Fault.RESTART, Fault.BREATHLESS})
"""What happens to processes."""

STOPS = frozenset({Fault.KILL, Fault.FREEZE})
"""The commonest of it."""

MESSAGES = frozenset({Fault.DOUBLE, Fault.DROP, Fault.DELAY})
"""What happens to hints."""


class NoMoreError(Exception):
    """What steps fail with."""


def acting(
    sink: Sink,
    name: str,
    *,
    undone: bool = True,
    fails: bool = False,
    limit: Limit | None = None,
) -> Step[str, str]:
    """A step that performs one effect for its input.

    Args:
        sink: Where.
        name: Of the step.
        undone: Whether it has a compensation, which performs the undoing effect.
        fails: Whether it raises after its effect.
        limit: Of the step.
    """
    transactional = sink.kind is EffectKind.TRANSACTIONAL

    def undo(ctx: StepContext, what: str) -> None:
        ctx.perform(sink.undo, f"{name}.{ctx.visit}/{what}")

    def do(ctx: StepContext, what: str) -> str:
        ctx.perform(sink.do, f"{name}.{ctx.visit}/{what}")
        if fails:
            raise NoMoreError(f"{name} fails")
        return what

    options: dict[str, Any] = {"transactional": transactional, "retry": NEVER}
    back: Step[str, None] = Step(
        undo, name=f"un{name}", effects=(sink.undo,), transactional=transactional
    )
    return Step(
        do,
        name=name,
        effects=(sink.do,),
        compensate=back if undone else None,
        limit=limit,
        **options,
    )


def plain(name: str) -> Step[str, str]:
    """A step that does nothing."""

    def body(what: str) -> str:
        return what

    return Step(body, name=name, retry=NEVER)


def failing(name: str) -> Step[str, str]:
    """A step that fails for good."""

    def body(what: str) -> str:
        raise NoMoreError(f"{name} of {what} fails")

    return Step(body, name=name, retry=NEVER)


class Case(Scenario):
    """A saga of one input, the sinks that it acts on, and how it may end.

    Attributes:
        sinks: Judge themselves.
        ends: The states in which it may end.
        value: The saga's input.
        result: What it gives if it succeeds; None for its input.
    """

    budgets: Sequence[Budget] = (Budget(1, 1),)
    sinks: Sequence[Sink] = ()
    ends: Sequence[Status] = (Status.SUCCEEDED,)
    value: str = "x"
    result: Any = None

    def begin(self, world: World) -> None:
        for sink in self.sinks:
            sink.begin(world)
        world.start(self.sagas[0], self.value)

    def judge(self, world: World) -> Iterable[str]:
        yield from self.judge_ends(world)
        for sink in self.sinks:
            yield from sink.judge(world.all_executions())

    def judge_ends(self, world: World) -> Iterator[str]:
        """Whether what was started has ended as it may."""
        for execution_id in world.started:
            end = world.end_of(execution_id)
            rests = self.parks and end not in world.unfinished() and not end.status.ended
            if end.status not in self.ends and not rests:
                error = end.error and f" with {end.error['code']}: {end.error['message']}"
                yield f"{world.name_of(end)} has come to rest as {end.status}{error or ''}"
            elif end.status is Status.SUCCEEDED:
                yield from self.judge_success(world, end)

    def judge_success(self, world: World, end: Execution) -> Iterator[str]:
        """Whether a success gives what it should, and all of it stands."""
        wanted = self.value if self.result is None else self.result
        if end.result != wanted:
            yield f"{world.name_of(end)} gives {end.result!r}, not {wanted!r}"


def saga(name: str, *steps: Step[str, str]) -> Saga[str, str]:
    """Steps one after the other."""
    made: Saga[str, str] = Saga(name, input=str)
    for each in steps:
        made = made.then(each)
    return made
