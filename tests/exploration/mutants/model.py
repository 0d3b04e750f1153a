"""A protocol without one of its guards, and how exploration notices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fencepost.testing.explore import Broken, Budget, Explored, Scenario, explore
from tests.exploration.removing import Cut, without
from tests.exploration.scenarios import SCENARIOS

SMALL = Budget(1, 1)
KNOWN = {str(scenario): scenario for scenario in SCENARIOS}

RUN_RULES = {
    "run.endless": "the work ends",
    "run.unfinished": "the work ends",
    "run.raised": "no worker comes upon a state that can't be",
    "run.parked": "a person is asked only where it is needed",
}
"""What every scenario demands of a run, beside the invariants."""


@dataclass(frozen=True)
class Mutant:
    """The protocol without one guard.

    Attributes:
        guard: Names it.
        protects: What it is there for, in words that follow "so that".
        cuts: How it is removed.
        scenarios: Where its absence must be noticed, in the order in which they are looked at.
        budget: Within which.
        beside: Guards that hold the line alone where only this one is gone; then they are
            removed, too.
    """

    guard: str
    protects: str
    cuts: tuple[Cut, ...]
    scenarios: tuple[str, ...]
    budget: Budget = SMALL
    beside: str = ""

    def __str__(self) -> str:
        return self.guard

    @property
    def places(self) -> Sequence[str]:
        """Where the guard is: `module:function`, the package's name left out."""
        return list(dict.fromkeys(cut.where.removeprefix("fencepost.") for cut in self.cuts))


@dataclass(frozen=True)
class Killed:
    """How a guard's absence was noticed.

    Attributes:
        schedules: Run until then, with those of smaller budgets.
    """

    mutant: Mutant
    scenario: Scenario
    budget: Budget
    found: Explored
    schedules: int

    @property
    def rules(self) -> Sequence[str]:
        """What falls, the invariants first."""
        assert self.found.failure is not None
        broken = sorted(self.found.failure.broken, key=lambda b: (not b.invariant, b.invariant))
        return list(dict.fromkeys(_named(each) for each in broken))

    @property
    def events(self) -> int:
        """Choices that aren't "nothing happens", in the shortest schedule found."""
        assert self.found.failure is not None
        return sum(choice > 0 for choice in self.found.failure.record)


def _named(broken: Broken) -> str:
    if broken.invariant:
        return f"I{broken.invariant} `{broken.code}`"
    return RUN_RULES.get(broken.code) or f"the scenario's own: {broken.message}"


def kill(mutant: Mutant) -> Killed | None:
    """Explore without a guard until its absence is noticed; None if it isn't."""
    schedules = 0
    with without(mutant.cuts):
        for name in mutant.scenarios:
            for budget, found in _explored(KNOWN[name], mutant.budget):
                schedules += found.schedules
                if found.failure is not None:
                    return Killed(mutant, KNOWN[name], budget, found, schedules)
    return None


def _explored(scenario: Scenario, budget: Budget) -> Iterator[tuple[Budget, Explored]]:
    """Iterative deepening: the fewer things happen, the easier it is to see why."""
    for bounds in _up_to(budget):
        yield bounds, explore(scenario, bounds)


def _up_to(budget: Budget) -> Iterable[Budget]:
    all_bounds = [
        Budget(preemptions, faults, budget.kinds)
        for preemptions in range(budget.preemptions + 1)
        for faults in range(budget.faults + 1)
    ]
    return sorted(all_bounds, key=lambda b: (b.preemptions + b.faults, b.faults))
