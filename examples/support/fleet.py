"""Celery workers of a demonstration, to be frozen, thawed and lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from examples.support.parent import PARENT
from examples.support.waiting import DemoError, wait_for
from fencepost import faults

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 10.0
CONCURRENCY = 4


@dataclass
class Worker:
    """One `celery worker` with its pool: a process group, as a machine or container would be."""

    name: str
    log_path: Path
    process: subprocess.Popen[bytes]

    def log(self) -> str:
        """All it has printed."""
        return self.log_path.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """To all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def ready(self) -> bool:
        """Whether it takes messages.

        Raises:
            DemoError: It has ended.
        """
        if self.process.poll() is not None:
            raise DemoError(f"{self.name} ended:\n{self.log()[-2000:]}")
        return " ready." in self.log()


class Fleet:
    """The workers of one app.

    Args:
        app: The module behind `celery -A`.
        environment: Added to ours.
        folder: For logs and fault plans.
        concurrency: Pool processes of each worker.
    """

    def __init__(
        self,
        app: str,
        environment: Mapping[str, str],
        folder: Path,
        *,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self._app = app
        self._environment = dict(environment)
        self._folder = folder
        self._concurrency = concurrency
        self.faults = folder / "faults"
        self.faults.mkdir(parents=True)
        self.workers: list[Worker] = []

    def start(self, count: int) -> None:
        """Start workers; they aren't ready yet."""
        first = len(self.workers) + 1
        self.workers += [self._started(f"w{n}") for n in range(first, first + count)]

    def _started(self, name: str) -> Worker:
        log = self._folder / f"{name}.log"
        command = [
            *(sys.executable, "-m", "celery", "-A", self._app, "worker"),
            *("-P", "prefork", "-c", str(self._concurrency), "-n", f"{name}@demo", "-l", "INFO"),
            *("--without-mingle", "--without-gossip"),
        ]
        ours = {faults.ENVIRONMENT: str(self.faults), PARENT: str(os.getpid())}
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | self._environment | ours,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Worker(name, log, process)

    def lose(self, workers: Sequence[Worker]) -> None:
        """SIGKILL: nothing of these workers is left. Others are started in their place."""
        for worker in workers:
            worker.signal(signal.SIGKILL)
            worker.process.wait()
        self.start(len(workers))

    def wait_until_ready(self) -> None:
        """Wait until all take messages."""
        for worker in self._alive():
            wait_for(worker.ready, START_SECONDS, f"{worker.name} of {self._app}")

    def _alive(self) -> list[Worker]:
        return [w for w in self.workers if w.process.returncode != -signal.SIGKILL]

    def of(self, pgid: int) -> Worker:
        """The worker whose process group this is."""
        return next(worker for worker in self.workers if worker.process.pid == pgid)

    def deliveries(self, task_id: str) -> tuple[int, int]:
        """How often a task was received, and how often a copy of it came to an end."""
        return _deliveries((worker.log() for worker in self.workers), task_id)

    def stop(self) -> None:
        """End all workers, frozen ones too."""
        alive = self._alive()
        for worker in alive:
            worker.signal(signal.SIGCONT)
            worker.process.terminate()
        give_up = time.monotonic() + STOP_SECONDS
        for worker in alive:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.1, give_up - time.monotonic()))
            worker.signal(signal.SIGKILL)
            worker.process.wait()


def _deliveries(logs: Iterator[str], task_id: str) -> tuple[int, int]:
    words = [found for log in logs for found in re.findall(rf"\[{task_id}\] (\w+)", log)]
    received = words.count("received")
    return received, len(words) - received


def victims(fleet: Fleet, plans: Sequence[Path], seconds: float, what: str) -> list[Worker]:
    """Wait until all plans have fired; the workers that they fired in."""

    def fired() -> list[Worker]:
        records = [faults.fired(plan) for plan in plans]
        return [fleet.of(r[0]["pgid"]) for r in records] if all(records) else []

    return wait_for(fired, seconds, what)
