"""Drives a world: at each point it lists what may happen next, and has a chooser pick."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from fencepost.testing.explore.choices import Recorder
from fencepost.testing.explore.scheduler import Condition, Task, Verdict
from fencepost.testing.explore.world import Budget, Message, World

MOST_MOVES = 3_000
"""Moves after which a run counts as endless."""

A_MOMENT = 0.001
"""Seconds beyond an event's time to which the clock is moved."""


class EndlessError(AssertionError):
    """A run came to no end."""


@dataclass(frozen=True)
class Option:
    """One thing that may happen next.

    Attributes:
        preempts: What it takes from the budget of preemptions.
        faults: What it takes from the budget of faults.
    """

    what: str
    do: Callable[[], None]
    preempts: int = 0
    faults: int = 0


class Driver:
    """Runs one schedule to its end.

    Args:
        world: With its first messages.
        chooser: Picks among the options; option 0 changes nothing.
        budget: What may happen in all.
    """

    def __init__(self, world: World, chooser: Recorder, budget: Budget) -> None:
        self._world = world
        self._chooser = chooser
        self._preemptions = budget.preemptions
        self._faults = budget.faults
        self._kinds = budget.kinds
        self._current: Task | None = None

    def run(self) -> None:
        """Go on until nothing is left that could happen.

        Raises:
            EndlessError: It doesn't come to an end.
        """
        for _ in range(MOST_MOVES):
            options = list(self._options())
            if not options:
                return
            option = options[self._chooser.choose(len(options))]
            self._preemptions -= option.preempts
            self._faults -= option.faults
            option.do()
        raise EndlessError(f"no end after {MOST_MOVES} moves")

    # -- what may happen -------------------------------------------------------------------

    def _options(self) -> Iterator[Option]:
        current = self._current
        if current is not None and current.ready:
            yield self._go(current, 0)
            if self._preemptions:
                yield from self._others(current, preempts=1)
            if self._faults:
                yield from self._faults_of(current)
            return
        choices = [*self._others(None, preempts=0)]
        if choices:
            yield from choices
            if self._faults and "double" in self._kinds:
                yield from (self._double(message) for message in self._world.messages)
            return
        yield from self._when_idle()

    def _others(self, current: Task | None, *, preempts: int) -> Iterator[Option]:
        for task in self._world.scheduler.tasks:
            if task.ready and task is not current:
                yield self._go(task, preempts)
        worker = self._world.free_worker()
        seen = set()
        for message in self._world.messages if worker is not None else ():
            if message.execution_id not in seen:
                seen.add(message.execution_id)
                yield self._deliver(message, worker or "", preempts)

    def _faults_of(self, task: Task) -> Iterator[Option]:
        if "freeze" in self._kinds:
            yield self._strike(task, "is frozen before", Condition.FROZEN)
        if "kill" in self._kinds:
            yield self._strike(task, "is killed before", Condition.DEAD)
        if task.lossy:
            for verdict in (Verdict.LOSE_ANSWER, Verdict.LOSE_REQUEST):
                if verdict in self._kinds:
                    what = f"{task.worker} hears no answer to {task.at} ({verdict})"
                    yield Option(what, partial(self._move, task, verdict, what), faults=1)
        if "forget" in self._kinds:
            yield Option("Redis forgets everything", self._forget, faults=1)

    def _when_idle(self) -> Iterator[Option]:
        world = self._world
        due = world.next_event()
        frozen = [t for t in world.scheduler.tasks if t.condition is Condition.FROZEN]
        thaws = [self._thaw(task) for task in frozen]
        if due is not None:
            yield Option("time goes by", partial(self._time_goes_by, due))
            if self._preemptions:
                yield from (Option(t.what, t.do, preempts=1) for t in thaws)
        else:
            yield from thaws

    # -- doing it --------------------------------------------------------------------------

    def _go(self, task: Task, preempts: int) -> Option:
        return Option(
            f"{task.worker}: {task.at}", partial(self._move, task, Verdict.GO, ""), preempts
        )

    def _move(self, task: Task, verdict: Verdict, what: str) -> None:
        if self._current is not task and task.at != "start":
            self._world.tell(task.worker, "goes on")
        self._current = task
        self._world.tell(task.worker, what or task.at if task.at != "start" else task.name)
        self._world.scheduler.move(task, verdict)

    def _deliver(self, message: Message, worker: str, preempts: int) -> Option:
        def do() -> None:
            self._move(self._world.deliver(message, worker), Verdict.GO, "")

        return Option(f"{worker} is given {message.name}", do, preempts)

    def _strike(self, task: Task, how: str, condition: Condition) -> Option:
        def do() -> None:
            self._world.tell(task.worker, f"{how} {task.at}")
            task.condition = condition
            if condition is Condition.DEAD:
                self._world.forget_hearts(task)
            self._current = None

        return Option(f"{task.worker} {how} {task.at}", do, faults=1)

    def _thaw(self, task: Task) -> Option:
        def do() -> None:
            self._world.tell(task.worker, f"is thawed before {task.at}")
            task.condition = Condition.READY
            self._current = None
            self._move(task, Verdict.GO, "")

        return Option(f"{task.worker} is thawed", do)

    def _forget(self) -> None:
        self._world.tell("redis", "forgets everything")
        self._world.leases.flush()

    def _double(self, message: Message) -> Option:
        def do() -> None:
            self._world.tell("broker", f"doubles the message of {message.name}")
            self._world.messages.append(Message(message.execution_id, message.name))

        return Option(f"the message of {message.name} is doubled", do, faults=1)

    def _time_goes_by(self, due: float) -> None:
        self._world.advance(due + A_MOMENT)
        self._world.tell("clock", f"{self._world.clock.now:.0f}")
        self._move(self._world.reap(), Verdict.GO, "")
