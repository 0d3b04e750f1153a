"""Crash points of the workers: armed by a test, fired in whoever comes to them first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencepost import faults
from fencepost.testing.waiting import wait_for

if TYPE_CHECKING:
    from fencepost.testing.worker import Worker

FIRE_SECONDS = 60.0


class CrashPoints:
    """What shall happen to the workers, and where.

    The points are Fencepost's own, and those that your code names with `fencepost.faults.reach`,
    which does nothing in production.

    Args:
        folder: For the plans; the workers get it as `FENCEPOST_FAULTS`.

    Attributes:
        workers: Those in which they can fire.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.workers: list[Worker] = []
        self._armed: list[Fault] = []

    def arm(
        self,
        point: str,
        action: str,
        *,
        match: Mapping[str, object] | None = None,
        times: int = 1,
    ) -> Fault:
        """Have something happen to the next worker that comes to a point.

        Args:
            point: Its name, such as `effect.applied`.
            action: `kill`, `freeze` (the worker with all its processes), `kill-self`,
                `freeze-self` (the one process), `term`, `raise`, `exit` or `pause`.
            match: Facts of the point that must be so, such as `{"step": "book"}`; compared as
                strings.
            times: How often it fires, whoever comes.

        Returns:
            The armed point, to be waited for.
        """
        wanted = {name: str(value) for name, value in (match or {}).items()}
        name = f"{len(self._armed) + 1:03d}-{point}"
        path = faults.arm(self.folder, point, action, match=wanted, times=times, name=name)
        fault = Fault(self, path)
        self._armed.append(fault)
        return fault

    def disarm(self) -> None:
        """Forget all plans, and let everyone go on who pauses at one."""
        for fault in self._armed:
            fault.path.unlink(missing_ok=True)
            fault.go()


class Fault:
    """An armed crash point.

    Args:
        points: Where it was armed.
        path: Its plan.
    """

    def __init__(self, points: CrashPoints, path: Path) -> None:
        self._points = points
        self.path = path

    def fired(self) -> list[dict[str, Any]]:
        """What was recorded each time: `pid`, `pgid`, `point`, `facts`, `action`, `at`."""
        return faults.fired(self.path)

    def wait(self, timeout: float = FIRE_SECONDS) -> dict[str, Any]:
        """Wait until it has fired; what was recorded the first time.

        Raises:
            AssertionError: It hasn't fired in time; has the workers' last words.
        """
        return wait_for(self.fired, timeout, self._missing)[0]

    def victim(self, timeout: float = FIRE_SECONDS) -> Worker:
        """Wait until it has fired; the worker in which it did.

        Raises:
            AssertionError: It hasn't fired in time.
        """
        group = self.wait(timeout)["pgid"]
        (found,) = [worker for worker in self._points.workers if worker.pid == group]
        return found

    def go(self) -> None:
        """Let the process that pauses here go on."""
        self.path.with_suffix(".go").touch()

    def _missing(self) -> str:
        words = "\n".join(worker.last_words() for worker in self._points.workers)
        return f"{self.path.stem} to fire\n{words}"
