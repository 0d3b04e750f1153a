"""Running many schedules of one scenario, and telling of the first that breaks a rule."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from fencepost.testing.explore.budget import Budget
from fencepost.testing.explore.choices import Chooser, Recorder, Replay, Walk, following
from fencepost.testing.explore.driver import Driver, EndlessError
from fencepost.testing.explore.facts import facts_of
from fencepost.testing.explore.scenario import Scenario
from fencepost.testing.explore.world import Moved, World
from fencepost.verify.checks import ENGINE_INVARIANTS
from fencepost.verify.invariant import Findings


@dataclass(frozen=True)
class Broken:
    """A rule that a run has broken.

    Attributes:
        invariant: Its number; 0 for one of the scenario's own, or a run without an end.
        code: Of the finding.
    """

    invariant: int
    code: str
    message: str

    def __str__(self) -> str:
        rule = f"invariant {self.invariant}" if self.invariant else "the scenario's rule"
        return f"{rule}: {self.message} [{self.code}]"


@dataclass(frozen=True)
class Run:
    """One schedule, to its end.

    Attributes:
        record: The schedule: play it again with `replay`.
        picked: The choices with the counts of their options.
    """

    record: Sequence[int]
    picked: Sequence[tuple[int, int]]
    broken: Sequence[Broken]
    timeline: Sequence[Moved]


@dataclass
class Explored:
    """What exploring a scenario has shown.

    Attributes:
        schedules: How many were run.
        complete: Whether these were all within the budget.
        failure: The first that broke a rule, shrunk.
    """

    scenario: str
    schedules: int = 0
    seconds: float = 0.0
    complete: bool = False
    failure: Run | None = None
    broken: set[tuple[int, str]] = field(default_factory=set)


MOST_TOLD = 300
"""Lines of a timeline that are printed."""


@contextmanager
def quiet() -> Iterator[None]:
    """No log lines: what happens in a schedule is told by its timeline."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def play(scenario: Scenario, chooser: Chooser, budget: Budget) -> Run:
    """Run one schedule."""
    recorder = Recorder(chooser)
    endless: EndlessError | None = None
    world = World(
        scenario.registry, workers=scenario.workers, max_recoveries=scenario.max_recoveries
    )
    with world:
        scenario.begin(world)
        try:
            Driver(world, recorder, budget).run()
        except EndlessError as error:
            endless = error
        broken = list(_judged(scenario, world, endless))
    return Run(recorder.record, recorder.picked, broken, world.timeline)


def replay(scenario: Scenario, record: Sequence[int], budget: Budget) -> Run:
    """Run a recorded schedule again."""
    return play(scenario, Replay(record), budget)


def _judged(scenario: Scenario, world: World, endless: EndlessError | None) -> Iterator[Broken]:
    if endless is not None:
        yield Broken(0, "run.endless", str(endless))
        return
    for task, error in world.scheduler.errors:
        yield Broken(0, "run.raised", f"{task.name} raised {type(error).__name__}: {error}")
    for execution in world.unfinished():
        name = world.name_of(execution)
        yield Broken(0, "run.unfinished", f"{name} is {execution.status}, and nothing happens")
    for execution in () if scenario.parks else world.parked():
        name, reason = world.name_of(execution), execution.parked_reason
        yield Broken(0, "run.parked", f"{name} is parked, and need not be: {reason}")
    facts = facts_of(world)
    for invariant in ENGINE_INVARIANTS:
        findings = Findings(invariant.number)
        invariant.check(facts, findings)
        for violation in findings.violations:
            yield Broken(invariant.number, violation.code, violation.message)
    for message in scenario.judge(world):
        yield Broken(0, "scenario", message)


def explore(
    scenario: Scenario,
    budget: Budget,
    *,
    most: int | None = None,
    seconds: float | None = None,
    stop_at_failure: bool = True,
) -> Explored:
    """Run every schedule within the budget, depth first.

    Args:
        scenario: What is explored.
        budget: How much may happen in one run.
        most: Schedules after which it stops without being complete.
        seconds: The same for time.
        stop_at_failure: False counts all that break a rule.
    """
    return _many(
        scenario,
        budget,
        _depth_first(),
        most=most,
        seconds=seconds,
        stop_at_failure=stop_at_failure,
    )


def walk(
    scenario: Scenario,
    budget: Budget,
    *,
    seed: int,
    schedules: int,
    seconds: float | None = None,
    stop_at_failure: bool = True,
) -> Explored:
    """Run schedules at random, each from its own seed, from `seed` on."""
    seeds = (Walk(seed + number) for number in range(schedules))

    def next_chooser(_last: Run | None) -> Chooser | None:
        return next(seeds, None)

    return _many(
        scenario, budget, next_chooser, most=None, seconds=seconds, stop_at_failure=stop_at_failure
    )


def _depth_first() -> Callable[[Run | None], Chooser | None]:
    def next_chooser(last: Run | None) -> Chooser | None:
        record = [] if last is None else following(last.picked)
        return None if record is None else Replay(record)

    return next_chooser


def _many(
    scenario: Scenario,
    budget: Budget,
    next_chooser: Callable[[Run | None], Chooser | None],
    *,
    most: int | None,
    seconds: float | None,
    stop_at_failure: bool,
) -> Explored:
    found, began, last = Explored(str(scenario)), time.monotonic(), None
    with quiet():
        while (chooser := next_chooser(last)) is not None:
            if most is not None and found.schedules >= most:
                break
            if seconds is not None and time.monotonic() - began > seconds:
                break
            last = play(scenario, chooser, budget)
            found.schedules += 1
            if last.broken:
                found.broken |= {(b.invariant, b.code) for b in last.broken}
                found.failure = found.failure or shrunk(scenario, last, budget)
                if stop_at_failure:
                    break
        else:
            found.complete = True
    found.seconds = time.monotonic() - began
    return found


def shrunk(scenario: Scenario, run: Run, budget: Budget) -> Run:
    """A run that breaks the same rule with fewer choices that aren't zero."""
    wanted = {(b.invariant, b.code) for b in run.broken}
    best = run
    again = True
    while again:
        again = False
        for place, choice in enumerate(best.record):
            if choice == 0:
                continue
            for smaller in {0, choice - 1}:
                record = [*best.record[:place], smaller, *best.record[place + 1 :]]
                tried = replay(scenario, record, budget)
                same = wanted & {(b.invariant, b.code) for b in tried.broken}
                if same and _weight(tried) < _weight(best):
                    best, again = tried, True
                    break
            if again:
                break
    return best


def _weight(run: Run) -> tuple[int, int]:
    return sum(choice > 0 for choice in run.record), sum(run.record)


def told(scenario: Scenario, run: Run) -> str:
    """A run in words: what happened, in order, and which rules it broke."""
    lines = [f"{scenario}: schedule {','.join(map(str, run.record)) or '0'}"]
    width = max((len(moved.who) for moved in run.timeline), default=0)
    shown = run.timeline
    if len(shown) > MOST_TOLD:
        shown = [*shown[: MOST_TOLD - 20], Moved(shown[-20].at, "...", ""), *shown[-20:]]
    lines += [f"  {m.at:>8.3f} s  {m.who:<{width}}  {m.what}" for m in shown]
    lines += [f"  BROKEN  {broken}" for broken in run.broken]
    return "\n".join(lines)
