"""Drives a world: at each point it lists what may happen next, and has a chooser pick."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from fencepost.testing.explore.budget import Budget, Fault
from fencepost.testing.explore.choices import Recorder
from fencepost.testing.explore.scheduler import START, Condition, Task, Verdict
from fencepost.testing.explore.world import REAPER, USER, Message, World

MOST_MOVES = 3_000
"""Moves after which a run counts as endless."""

A_MOMENT = 0.001
"""Seconds beyond an event's time to which the clock is moved."""

BETWEEN_PASSES = 1.0
"""Seconds between two passes of a reaper."""

REDIS = "redis."
"""What the names of Redis's operations begin with."""


class EndlessError(AssertionError):
    """A run came to no end."""


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that may happen next.

    Attributes:
        preempts: What it takes from the budget of preemptions.
        faults: What it takes from the budget of faults.
    """

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
            options = sorted(self._options(), key=_costs)
            if not options:
                return
            free = sum(not _costs(option) for option in options)
            option = options[self._chooser.choose(len(options), free)]
            self._preemptions -= option.preempts
            self._faults -= option.faults
            option.do()
        raise EndlessError(f"no end after {MOST_MOVES} moves")

    # -- what may happen -------------------------------------------------------------------

    def _options(self) -> Iterator[Option]:
        current = self._current
        if current is not None and current.ready:
            yield Option(partial(self._move, current, Verdict.GO))
            if self._preemptions:
                yield from self._others(current, preempts=1)
            if self._faults:
                yield from self._faults_of(current)
            return
        choices = [*self._others(None, preempts=0)]
        yield from choices
        if choices and self._faults:
            yield from self._faults_of_messages()
        if all(task.waits_to_begin for task in self._world.scheduler.tasks if task.ready) and not (
            self._world.messages and self._world.free_worker()
        ):
            yield from self._when_idle()

    def _others(self, current: Task | None, *, preempts: int) -> Iterator[Option]:
        world = self._world
        for task in world.scheduler.tasks:
            if task.ready and task is not current:
                yield Option(partial(self._move, task, Verdict.GO), preempts)
        worker = world.free_worker()
        seen = set()
        for message in world.messages if worker is not None else ():
            if message.execution_id not in seen:
                seen.add(message.execution_id)
                yield Option(partial(self._deliver, message, worker or ""), preempts)
        if preempts:
            for task in world.scheduler.tasks:
                if task.condition is Condition.FROZEN:
                    yield Option(partial(self._thaw, task), preempts)
            if current is not None and current.worker != REAPER and world.something_is_due():
                yield Option(self._reap, preempts)

    def _faults_of(self, task: Task) -> Iterator[Option]:
        kinds = self._kinds
        if task.worker != USER:
            yield from self._strikes(task)
        # Forgetting matters to whoever asks Redis next, so it is enough to do it right before.
        if Fault.FORGET in kinds and task.at.startswith(REDIS):
            yield Option(self._forget, faults=1)
        if task.worker not in (USER, REAPER):
            if Fault.SLOW in kinds and self._world.next_event() is not None:
                yield Option(self._runs_slowly, faults=1)
            if Fault.BREATHLESS in kinds and self._world.last_expiry() is not None:
                yield Option(self._runs_breathless, faults=1)

    def _strikes(self, task: Task) -> Iterator[Option]:
        kinds = self._kinds
        if Fault.FREEZE in kinds:
            yield self._strike(task, Condition.FROZEN)
        if Fault.KILL in kinds:
            yield self._strike(task, Condition.DEAD)
        if Fault.RESTART in kinds and self._several_are_up():
            yield Option(self._restart, faults=1)
        if task.lossy:
            for verdict, kind in LOSSES:
                if kind in kinds:
                    yield Option(partial(self._move, task, verdict), faults=1)

    def _faults_of_messages(self) -> Iterator[Option]:
        for message in self._world.messages:
            if Fault.DOUBLE in self._kinds and not message.doubled:
                yield Option(partial(self._double, message), faults=1)
            if Fault.DROP in self._kinds:
                yield Option(partial(self._drop, message), faults=1)
            if Fault.DELAY in self._kinds and not message.delayed:
                yield Option(partial(self._delay, message), faults=1)

    def _when_idle(self) -> Iterator[Option]:
        world = self._world
        due = world.next_event()
        frozen = [t for t in world.scheduler.tasks if t.condition is Condition.FROZEN]
        stuck = bool(world.messages) and world.free_worker() is None
        if due is not None and not (stuck and world.last_expiry() is None):
            yield Option(partial(self._time_goes_by, due))
            if self._faults and Fault.FORGET in self._kinds and world.leases.entries():
                yield Option(self._forget, faults=1)
            if stuck or self._preemptions:
                price = 0 if stuck else 1
                yield from (Option(partial(self._thaw, task), price) for task in frozen)
        elif world.held:
            yield Option(self._delayed_come)
        else:
            yield from (Option(partial(self._thaw, task)) for task in frozen)

    def _several_are_up(self) -> bool:
        up = (Condition.READY, Condition.FROZEN)
        tasks = self._world.scheduler.tasks
        return sum(t.condition in up and t.worker != USER for t in tasks) > 1

    # -- doing it --------------------------------------------------------------------------

    def _move(self, task: Task, verdict: Verdict) -> None:
        begins = task.at == START
        if self._current is not task and not begins:
            self._world.tell(task.worker, "goes on")
        self._current = task
        if verdict is Verdict.GO:
            self._world.tell(task.worker, task.name if begins else task.at)
        else:
            self._world.tell(task.worker, f"{task.at}: {TOLD[verdict]}")
        self._world.scheduler.move(task, verdict)
        if begins and task.ready:
            # Nothing is shared before the first operation: nobody could tell a stop in between.
            self._world.tell(task.worker, task.at)
            self._world.scheduler.move(task)
        if task.condition is Condition.DEAD:
            self._world.forget_hearts(task)
            self._world.tell(task.worker, "has died")

    def _deliver(self, message: Message, worker: str) -> None:
        self._move(self._world.deliver(message, worker), Verdict.GO)

    def _reap(self) -> None:
        self._move(self._world.reap(), Verdict.GO)

    def _strike(self, task: Task, condition: Condition) -> Option:
        def do() -> None:
            how = "is killed" if condition is Condition.DEAD else "is frozen"
            self._world.tell(task.worker, f"{how} before {task.at}")
            self._put(task, condition)

        return Option(do, faults=1)

    def _restart(self) -> None:
        self._world.tell("everything", "is killed and restarted")
        for task in self._world.scheduler.tasks:
            if task.condition in (Condition.READY, Condition.FROZEN) and task.worker != USER:
                self._put(task, Condition.DEAD)

    def _put(self, task: Task, condition: Condition) -> None:
        task.condition = condition
        if condition is Condition.DEAD:
            self._world.forget_hearts(task)
        self._current = None

    def _thaw(self, task: Task) -> None:
        self._world.tell(task.worker, f"is thawed before {task.at}")
        task.condition = Condition.READY
        self._move(task, Verdict.GO)

    def _forget(self) -> None:
        self._world.tell("redis", "forgets everything")
        self._world.leases.flush()

    def _double(self, message: Message) -> None:
        self._world.tell("broker", f"doubles the message of {message.name}")
        message.doubled = True
        self._world.messages.append(Message(message.execution_id, message.name, doubled=True))

    def _drop(self, message: Message) -> None:
        self._world.tell("broker", f"loses the message of {message.name}")
        self._world.messages.remove(message)

    def _delay(self, message: Message) -> None:
        self._world.tell("broker", f"holds up the message of {message.name}")
        message.delayed = True
        self._world.messages.remove(message)
        self._world.held.append(message)

    def _delayed_come(self) -> None:
        self._world.messages += self._world.held
        self._world.held.clear()

    def _time_goes_by(self, due: float) -> None:
        self._pass_time(due)
        self._reap()

    def _runs_slowly(self) -> None:
        due = self._world.next_event()
        assert due is not None
        self._pass_time(due)
        self._world.reap()
        self._current = None

    def _runs_breathless(self) -> None:
        expiry = self._world.last_expiry()
        assert expiry is not None
        self._world.tell("network", "lets no renewal through")
        self._pass_time(expiry, beating=False)
        self._world.reap()
        self._current = None

    def _pass_time(self, until: float, *, beating: bool = True) -> None:
        # What is due and was left alone is looked at again with the reaper's next pass.
        until = max(until + A_MOMENT, self._world.clock.now + BETWEEN_PASSES)
        self._world.advance(until, beating=beating)
        self._world.tell("clock", f"{self._world.elapsed:.0f} s")
        self._delayed_come()


def _costs(option: Option) -> bool:
    return bool(option.preempts or option.faults)


LOSSES = (
    (Verdict.LOSE_ANSWER, Fault.LOSE_ANSWER),
    (Verdict.LOSE_REQUEST, Fault.LOSE_REQUEST),
)
TOLD = {
    Verdict.LOSE_ANSWER: "done, but the answer is lost",
    Verdict.LOSE_REQUEST: "the request is lost",
}
