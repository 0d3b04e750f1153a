"""Schedule exploration: every interleaving of a small fleet, and random ones of a larger one.

    class Refunds(Scenario):
        sagas = (refund,)

        def begin(self, world: World) -> None:
            world.start(refund, 42)

        def judge(self, world: World) -> Iterable[str]:
            if bank.paid_twice():
                yield "it was paid twice"

    found = explore(Refunds(), Budget(preemptions=1, faults=1))
    print(found)

`python -m fencepost.testing.explore MODULE:NAME` does the same. Needs greenlet, which comes with
the extra: `pip install "fencepost[testing]"`.
"""

from fencepost.testing.explore.budget import Budget, Fault
from fencepost.testing.explore.exploring import (
    Broken,
    Explored,
    Run,
    explore,
    replay,
    shrunk,
    told,
    walk,
)
from fencepost.testing.explore.scenario import Scenario
from fencepost.testing.explore.scheduler import Verdict
from fencepost.testing.explore.world import World

__all__ = [
    "Broken",
    "Budget",
    "Explored",
    "Fault",
    "Run",
    "Scenario",
    "Verdict",
    "World",
    "explore",
    "replay",
    "shrunk",
    "told",
    "walk",
]
