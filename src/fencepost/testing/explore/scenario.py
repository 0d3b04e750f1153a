"""`Scenario`: what is explored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property

from fencepost.commands import Definition
from fencepost.engine.registry import Registry
from fencepost.testing.explore.budget import Budget
from fencepost.testing.explore.world import World


class Scenario(ABC):
    """A small configuration: what runs, who does what to it, and what must come of it.

    One object is used for many runs: `begin` resets whatever an earlier one has left, in sinks
    for instance. Only what depends on nothing but the schedule can be replayed, so the code in
    here asks no clock, no thread and no network.

    Attributes:
        name: Names it on the command line.
        sagas: What the workers know; child sagas come along with their parents.
        workers: How many there are.
        max_recoveries: Takeovers without progress after which an execution is parked.
        parks: Whether an execution may end up parked.
        budgets: What is explored exhaustively, each within its bounds.
        walks: The bounds of runs at random.
    """

    name: str = ""
    sagas: Sequence[Definition] = ()
    workers: int = 2
    max_recoveries: int = 5
    parks: bool = False
    budgets: Sequence[Budget] = (Budget(1, 1),)
    walks: Budget = Budget(6, 4)

    @cached_property
    def registry(self) -> Registry:
        """What the workers know, checked once for all runs."""
        return Registry(self.sagas)

    @abstractmethod
    def begin(self, world: World) -> None:
        """Start executions, say what users do, and reset what earlier runs have left.

        Args:
            world: Of this run; not yet running. See `World.start`, `World.user` and
                `World.point`.
        """

    def judge(self, world: World) -> Iterable[str]:  # noqa: ARG002 - for those that override it
        """What is wrong with the end of a run, beside what the invariants say.

        Args:
            world: Of this run, at rest.
        """
        return ()

    def __str__(self) -> str:
        return self.name or type(self).__name__
