"""Real Celery workers as child processes, each the leader of a session of its own.

A worker's process group is its main process with its pool, so that one signal freezes or kills
a whole worker, as a machine that stops would.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from coordinator import lifeline
from coordinator.runtime import Action, WorkerError

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 60.0
STOP_SECONDS = 15.0
_POLL = 0.05


@dataclass
class Worker:
    """A running `celery worker`.

    Attributes:
        name: The part of its node name before the `@`.
        log: Where all its output goes.
        process: Its main process, the leader of its group.
        gone: Nothing of its group is left; the id may belong to somebody else by now.
    """

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    gone: bool = False

    @property
    def pgid(self) -> int:
        """The id of its process group, which is its main process's pid."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether its main process is there, frozen or not."""
        return self.process.poll() is None

    @property
    def place(self) -> str:
        """Its main process's id."""
        return f"pid {self.process.pid}"

    @property
    def facts(self) -> Mapping[str, Any]:
        """Its process group."""
        return {"process_group": self.pgid}

    def means(self, action: Action) -> str:
        """The signal."""
        match action:
            case Action.FREEZE:
                return f"SIGSTOP to its whole process group {self.pgid}"
            case Action.KILL:
                return f"SIGKILL to its whole process group {self.pgid}"
            case Action.HOLD | Action.CUT_OFF:
                return str(action)

    @property
    def means_of_return(self) -> str:
        """The signal that thaws."""
        return "SIGCONT"

    def come_back(self) -> None:
        """Thaw all of it."""
        self.signal(signal.SIGCONT)

    def members(self) -> list[psutil.Process]:
        """All processes of its group that are still there."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and os.getpgid(process.pid) == self.pgid:
                    found.append(process)
        return found

    def frozen(self) -> bool:
        """Whether the operating system reports every process of the group as stopped."""
        members = self.members()
        return bool(members) and all(m.status() == psutil.STATUS_STOPPED for m in members)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; harmless if it is gone."""
        with suppress(ProcessLookupError):
            os.killpg(self.pgid, number)

    def terminate(self) -> None:
        """Ask the main process for a warm shutdown, as a service manager does."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)

    def says(self, words: str) -> bool:
        """Whether its log has these words."""
        return words in self.log.read_text(errors="replace")

    def wait_until_it_says(self, words: str, seconds: float) -> None:
        """Follow the log until it has these words.

        Raises:
            WorkerError: It ended, or kept silent; the message has its last words.
        """
        deadline = time.monotonic() + seconds
        while not self.says(words):
            if not self.running and not self.says(words):
                code = self.process.returncode
                raise self._failed(f"ended with exit code {code}")
            if time.monotonic() > deadline:
                raise self._failed(f"did not say {words!r} within {seconds:.0f} s")
            time.sleep(_POLL)

    def wait_until_it_ends(self, seconds: float) -> int:
        """Wait for the main process; returns its exit code.

        Raises:
            WorkerError: It is still there.
        """
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self._failed(f"did not end within {seconds:.0f} s") from None

    def end(self) -> None:
        """Make sure that nothing of it is left; the last resort of every clean-up."""
        if self.gone:
            return
        self.signal(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
            self.gone = True

    def _failed(self, what: str) -> WorkerError:
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        return WorkerError(
            f"{self.name} {what}; the end of {self.log}:\n{tail}",
            worker=self.name,
            log=str(self.log),
        )


class Fleet:
    """The workers of a scenario.

    Args:
        environment: What the workers get on top of this process's environment.
        logs: The folder of their logs.
    """

    def __init__(self, environment: Mapping[str, str], logs: Path) -> None:
        self._environment = dict(environment)
        self._logs = logs
        self.workers: list[Worker] = []

    def start(self, name: str) -> Worker:
        """Start a worker; it isn't ready yet.

        Args:
            name: Unique in the fleet.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{name}.log"
        command = [
            *(sys.executable, "-m", "celery", "-A", "coordinator.app", "worker"),
            *("--hostname", f"{name}@%h", "--concurrency", "1", "--pool", "prefork"),
            # Two workers that greet each other cost a second at each start, and nothing else.
            *("--loglevel", "INFO", "--without-mingle", "--without-gossip"),
        ]
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | self._environment | {lifeline.ENVIRONMENT: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        worker = Worker(name, log, process)
        self.workers.append(worker)
        return worker

    def wait_until_ready(self, *workers: Worker) -> None:
        """Wait until these workers, or all, take work.

        Raises:
            WorkerError: One did not start.
        """
        for worker in workers or self.workers:
            worker.wait_until_it_says(" ready.", START_SECONDS)

    def of_group(self, pgid: int) -> Worker:
        """The worker whose process group this is."""
        return next(worker for worker in self.workers if worker.pgid == pgid)

    def stop(self) -> None:
        """End all workers, warmly if they let themselves be ended so."""
        running = [worker for worker in self.workers if worker.running]
        for worker in running:
            worker.signal(signal.SIGCONT)
            worker.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for worker in running:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - time.monotonic()))
        self.end()

    def end(self) -> None:
        """Kill what is left of any worker."""
        for worker in self.workers:
            worker.end()


@contextmanager
def fleet(environment: Mapping[str, str], logs: Path) -> Iterator[Fleet]:
    """A fleet for the length of a `with` block; nothing of it is left afterwards."""
    made = Fleet(environment, logs)
    try:
        yield made
        made.stop()
    finally:
        # An interrupted scenario does not wait for warm shutdowns.
        made.end()
