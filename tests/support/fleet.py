"""The testing kit's fleet for our own tests: runs from the repository's root."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from fencepost.testing import fleet as kit
from fencepost.testing.crash_points import Fault
from fencepost.testing.worker import LOG_TAIL, START_SECONDS, STOP_SECONDS, Worker

__all__ = ["LOG_TAIL", "ROOT", "START_SECONDS", "STOP_SECONDS", "Fault", "Fleet", "Worker"]

ROOT = Path(__file__).parents[2]


class Fleet(kit.Fleet):
    """The workers of one Celery app.

    Args:
        folder: For logs and fault plans.
        module: What stands behind `celery -A`.
        environment: Added to the workers' environment.
        cwd: Where they run; by default the repository's root.
        python: The interpreter that has Celery.
    """

    def __init__(
        self,
        folder: Path,
        module: str,
        environment: Mapping[str, str],
        *,
        cwd: Path = ROOT,
        python: str = sys.executable,
    ) -> None:
        super().__init__(
            folder,
            module,
            environment,
            cwd=cwd,
            python=python,
            not_inherited=(*kit.NOT_INHERITED, "SAMPLE_"),
        )

    @property
    def faults(self) -> Path:
        """Where the fault plans are."""
        return self.crash_points.folder

    def arm(self, point: str, action: str, **match: str) -> Fault:
        """Arm a crash point in all workers; it fires once, in one of them."""
        return self.arm_times(1, point, action, **match)

    def arm_times(self, times: int, point: str, action: str, **match: str) -> Fault:
        """Arm a crash point that fires this many times, whoever comes."""
        return self.crash_points.arm(point, action, match=match, times=times)

    def disarm(self) -> None:
        """Forget all fault plans, and let everyone go on who pauses at one."""
        self.crash_points.disarm()
