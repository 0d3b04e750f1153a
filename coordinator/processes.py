"""The runtime of processes: workers of the scenario's own, hit by signals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from uuid import UUID

from coordinator.fleet import Fleet, Worker, fleet
from coordinator.runtime import Action, Hit, Sprung, Target, UnsupportedError
from coordinator.site import Site
from fencepost import faults
from fencepost.records import Execution
from ledger.vocabulary import ReleaseRequest

WORKERS = 2
_PLANS = {Action.FREEZE: "freeze", Action.KILL: "kill", Action.HOLD: "pause"}


@dataclass(frozen=True, slots=True)
class ProcessTrap:
    """A fault plan: whoever comes there sends the signal to its own group.

    Attributes:
        plan: Its file.
    """

    plan: Path
    fleet: Fleet

    def sprung(self) -> Sprung | None:
        """Who came there."""
        records = faults.fired(self.plan)
        if not records:
            return None
        record = records[0]
        return Sprung(record["facts"], record["pid"], record["pgid"], record["at"])

    def hit(self, sprung: Sprung, execution: Execution) -> Hit:  # noqa: ARG002 - by its group
        """It is done already: by the worker itself."""
        return Hit(self.fleet.of_group(sprung.pgid), sprung.at)

    def let_go(self) -> None:
        """Let a worker that was held go on."""
        self.plan.with_suffix(".go").touch()

    def disarm(self) -> None:
        """Nobody else shall fall into it."""
        self.plan.unlink(missing_ok=True)


class ProcessRuntime:
    """Real Celery workers as child processes.

    Args:
        site: Servers and folders.
        workers: From `coordinator.fleet.fleet`.
    """

    def __init__(self, site: Site, workers: Fleet) -> None:
        self._site = site
        self._fleet = workers
        self._numbers = count(1)

    @property
    def site(self) -> Site:
        """Servers and folders."""
        return self._site

    @property
    def workers(self) -> Sequence[Worker]:
        """All that were started."""
        return self._fleet.workers

    def hire(self) -> None:
        """Have two workers, whatever became of those before."""
        running = [worker for worker in self._fleet.workers if worker.running]
        while len(running) < WORKERS:
            running.append(self._started())
        self._fleet.wait_until_ready(*running)

    def _started(self) -> Worker:
        number = len(self._fleet.workers)
        suffix = chr(ord("a") + number) if number < 26 else str(number)
        return self._fleet.start(f"worker-{suffix}")

    def adapted(self, request: ReleaseRequest) -> ReleaseRequest:
        """Unchanged: the workers see what we see."""
        return request

    def trap(self, target: Target, action: Action) -> ProcessTrap:
        """Arm a fault plan.

        Raises:
            UnsupportedError: Processes of one machine can't be cut off from its servers.
        """
        if action not in _PLANS:
            raise _unsupported(action)
        name = f"{action}-{next(self._numbers)}"
        plan = faults.arm(
            self._site.faults, target.point, _PLANS[action], match=target.match, name=name
        )
        return ProcessTrap(plan, self._fleet)

    def restart_redis(self) -> None:
        """Not ours to restart."""
        raise _unsupported("redis-restart")

    def collect(self, root: UUID, release: str) -> None:
        """Nothing to do: the workers write to the site's folders."""


def _unsupported(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what} needs containers: docker compose up --build --detach, and then the same with"
        " --runtime compose",
        scenario=what,
        runtime="processes",
    )


@contextmanager
def process_runtime(site: Site) -> Iterator[ProcessRuntime]:
    """Workers for the length of a `with` block; nothing of them is left afterwards."""
    with fleet(site.environment(), site.logs) as workers:
        yield ProcessRuntime(site, workers)
