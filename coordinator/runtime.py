"""Where a scenario's workers run, and by what means they are hit: the port that runtimes implement.

A scenario says what happens to a worker; a runtime knows how: with signals to processes, or with
`docker compose` on a fleet of containers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from coordinator.site import Site
from fencepost.errors import ConfigurationError, FencepostError
from fencepost.records import Execution
from ledger.vocabulary import ReleaseRequest


class Action(StrEnum):
    """What happens to a worker that has come to a named point."""

    FREEZE = "freeze"
    KILL = "kill"
    CUT_OFF = "cut-off"
    HOLD = "hold"
    """It waits there until it is let go."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where in a release a worker is hit.

    Attributes:
        module: Whose step.
        attempt: Of the release; None for the first that comes there.
        point: The crash point.
    """

    module: str
    attempt: int | None
    point: str = "stage.archive-written"

    @property
    def match(self) -> dict[str, str]:
        """The condition of a fault plan."""
        wanted = {"module": self.module}
        return wanted if self.attempt is None else wanted | {"attempt": str(self.attempt)}


class WorkerError(FencepostError):
    """A worker did not start, or not do what was asked of it. Fields: `worker`, `log`."""

    code = "fleet.worker"


class UnsupportedError(ConfigurationError):
    """A scenario that this runtime can't play. Fields: `scenario`, `runtime`."""

    code = "runtime.unsupported"


class Worker(Protocol):
    """One worker with its pool."""

    @property
    def name(self) -> str:
        """Short and unique in the fleet, as in `worker-a`."""

    @property
    def place(self) -> str:
        """Where it runs, for people: `pid 12`."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Where it runs, for a report; JSON-compatible."""

    def means(self, action: Action) -> str:
        """How an action is done to it, for people: `SIGKILL to its whole process group 12`."""

    @property
    def means_of_return(self) -> str:
        """How a frozen or cut-off worker is brought back, for people."""

    def frozen(self) -> bool:
        """Whether all of it stands still."""

    def come_back(self) -> None:
        """Thaw it, or connect it again."""

    def terminate(self) -> None:
        """Ask for a warm shutdown."""

    def wait_until_it_says(self, words: str, seconds: float) -> None:
        """Follow its log until it has these words, or raise `WorkerError`."""

    def wait_until_it_ends(self, seconds: float) -> int:
        """Wait until nothing of it runs; returns its exit code, or raises `WorkerError`."""


@dataclass(frozen=True, slots=True)
class Sprung:
    """A worker came to the point that a trap was set at.

    Attributes:
        facts: Of the point.
        pid: Of the process that came there, as it sees itself.
        pgid: Of its process group.
        at: Seconds since 1970, by that process's clock.
    """

    facts: Mapping[str, str]
    pid: int
    pgid: int
    at: float

    @property
    def attempt(self) -> int:
        """Of the release."""
        return int(self.facts["attempt"])


@dataclass(frozen=True, slots=True)
class Hit:
    """An action has been done to a worker.

    Attributes:
        at: Seconds since 1970, by this machine's clock.
    """

    worker: Worker
    at: float


class Trap(Protocol):
    """Waits at a named point for the first worker that comes there."""

    def sprung(self) -> Sprung | None:
        """Who came there; None as long as nobody did."""

    def hit(self, sprung: Sprung, execution: Execution) -> Hit:
        """Do the action, if the worker hasn't met it by itself; returns when it is done.

        Args:
            sprung: From `sprung`.
            execution: What the worker has in hand, as it is in SQL.
        """

    def let_go(self) -> None:
        """Let a worker that was held, or will be thawed, go on from the point."""

    def disarm(self) -> None:
        """Nobody else shall fall into it."""


class Runtime(Protocol):
    """The workers of a scenario, and the servers around them."""

    @property
    def site(self) -> Site:
        """Servers and folders, as this process reaches them."""

    @property
    def workers(self) -> Sequence[Worker]:
        """All that were there at any time."""

    def hire(self) -> None:
        """Have the workers there and ready, whatever became of those before."""

    def adapted(self, request: ReleaseRequest) -> ReleaseRequest:
        """The same request with the paths that the workers see."""

    def trap(self, target: Target, action: Action) -> Trap:
        """Set a trap. Raises `UnsupportedError` if there are no means for this action."""

    def restart_redis(self) -> None:
        """Restart the broker's server; returns when it answers again."""

    def collect(self, root: UUID, release: str) -> None:
        """Bring what a release has left on the workers' disk to the site's folders.

        Args:
            root: The execution that was started.
            release: Its name.
        """
