"""Real `celery worker` processes, to be killed, frozen, thawed and terminated."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psutil

from fencepost import faults
from tests.support.waiting import wait_for

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
START_SECONDS = 40.0
STOP_SECONDS = 20.0
LOG_TAIL = 3_000

# Of our own environment, what would reach into a worker's settings.
_NOT_INHERITED = ("FENCEPOST_", "CELERY_", "SAMPLE_")


class Worker:
    """One `celery -A <module> worker` with all its processes, in a session of its own.

    Attributes:
        name: The node name, as in leases and events.
        log_path: What it prints.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        cwd: Path,
    ) -> None:
        self.name = name
        self.log_path = folder / f"{name.partition('@')[0]}.log"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=cwd,
                # Faults act on a whole process group, and it must not be the test's.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The main process, which leads the group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the main process has not ended."""
        return self._process.poll() is None

    def log(self) -> str:
        """All it has printed."""
        return self.log_path.read_text(errors="replace")

    def await_ready(self, timeout: float = START_SECONDS) -> None:
        """Wait until it takes messages.

        Raises:
            AssertionError: It ended, or isn't ready in time; has its last words.
        """

        def ready() -> bool:
            assert self.running, f"{self.name} ended:\n{self.log()[-LOG_TAIL:]}"
            return f"{self.name} ready." in self.log()

        wait_for(ready, timeout, f"{self.name} to be ready, see {self.log_path}")

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to every process of the worker."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, as when the machine is lost."""
        self.signal_group(signal.SIGKILL)
        self._process.wait(STOP_SECONDS)
        wait_for(lambda: not self.processes(), STOP_SECONDS, f"the end of {self.name}")

    def freeze(self) -> None:
        """SIGSTOP: nothing of it runs, and nobody is told."""
        self.signal_group(signal.SIGSTOP)
        wait_for(self.frozen, STOP_SECONDS, f"{self.name} to stand still")

    def thaw(self) -> None:
        """SIGCONT: it goes on where it stood, and doesn't know that time has passed."""
        self.signal_group(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM to the main process: a warm shutdown. Does not wait."""
        self._process.terminate()

    def wait(self, timeout: float = STOP_SECONDS) -> int:
        """Wait for the main process's end; returns its exit code."""
        return self._process.wait(timeout)

    def processes(self) -> list[psutil.Process]:
        """What still runs of its session, the main process included."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                ours = os.getsid(process.pid) == self.pid
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def frozen(self) -> bool:
        """Whether all its processes are stopped."""
        processes = self.processes()
        states = [process.status() for process in processes]
        return bool(states) and all(state == psutil.STATUS_STOPPED for state in states)


class Fleet:
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
        self.folder = folder
        self.faults = folder / "faults"
        self.faults.mkdir(parents=True, exist_ok=True)
        self._module = module
        self._environment = dict(environment)
        self._cwd = cwd
        self._python = python
        self.workers: list[Worker] = []
        self._armed: list[Fault] = []

    def start(
        self,
        count: int = 1,
        *,
        pool: str = "prefork",
        concurrency: int = 1,
        arguments: Sequence[str] = (),
        **environment: str,
    ) -> list[Worker]:
        """Start workers without waiting for them.

        Args:
            count: How many.
            pool: Celery's `-P`.
            concurrency: Celery's `-c`; the solo pool ignores it.
            arguments: More of `celery worker`'s.
            **environment: Variables for these workers only.
        """
        started = []
        for _ in range(count):
            name = f"w{len(self.workers) + 1}@test"
            argv = [
                *(self._python, "-m", "celery", "-A", self._module, "worker"),
                *("-P", pool, "-c", str(concurrency), "-n", name, "-l", "INFO"),
                # Each would add a second to every start, and neither matters to the protocol.
                *("--without-mingle", "--without-gossip"),
                *arguments,
            ]
            worker = Worker(name, argv, self._all(environment), self.folder, self._cwd)
            self.workers.append(worker)
            started.append(worker)
        return started

    def ready(self, count: int = 1, **how: Any) -> list[Worker]:
        """Start workers and wait until they take messages."""
        started = self.start(count, **how)
        for worker in started:
            worker.await_ready()
        return started

    def _all(self, more: Mapping[str, str]) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_INHERITED)}
        path = os.pathsep.join(p for p in (str(self._cwd), inherited.get("PYTHONPATH", "")) if p)
        return {
            **inherited,
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            faults.ENVIRONMENT: str(self.faults),
            **self._environment,
            **more,
        }

    @property
    def alive(self) -> list[Worker]:
        """Workers whose main process has not ended."""
        return [worker for worker in self.workers if worker.running]

    def of(self, pid: int) -> Worker:
        """The worker whose process group is `pid`'s, as a fault plan records it."""
        (found,) = [worker for worker in self.workers if worker.pid == pid]
        return found

    def arm(self, point: str, action: str, **match: str) -> Fault:
        """Arm a crash point in all workers; it fires once, in one of them."""
        return self.arm_times(1, point, action, **match)

    def arm_times(self, times: int, point: str, action: str, **match: str) -> Fault:
        """Arm a crash point that fires this many times, whoever comes."""
        name = f"{len(self._armed) + 1:03d}-{point}"
        path = faults.arm(self.faults, point, action, match=match, times=times, name=name)
        fault = Fault(self, path)
        self._armed.append(fault)
        return fault

    def disarm(self) -> None:
        """Forget all fault plans, and let everyone go on who pauses at one."""
        for fault in self._armed:
            fault.path.unlink(missing_ok=True)
            fault.go()

    def logs(self) -> str:
        """The end of every worker's log, for a failed assertion."""
        parts = [f"== {w.name} ({w.log_path})\n{w.log()[-LOG_TAIL:]}" for w in self.workers]
        return "\n".join(parts)

    def wait_for(self, probe: Callable[[], T], timeout: float, what: str) -> T:
        """Wait for a stored fact; failing that, show the workers' last words."""
        return wait_for(probe, timeout, lambda: f"{what}\n{self.logs()}")

    def stop(self) -> None:
        """End every worker, frozen ones too, and leave nothing running."""
        for worker in self.workers:
            worker.signal_group(signal.SIGKILL)
        for worker in self.workers:
            worker.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Fault:
    """An armed crash point.

    Args:
        fleet: Whose workers may fire it.
        path: Its plan.
    """

    def __init__(self, fleet: Fleet, path: Path) -> None:
        self._fleet = fleet
        self.path = path

    def fired(self) -> list[dict[str, Any]]:
        """What was recorded each time."""
        return faults.fired(self.path)

    def victim(self, timeout: float = 20.0) -> Worker:
        """Wait until it fires; the worker that it fired in."""
        fired = self._fleet.wait_for(self.fired, timeout, f"{self.path.stem} to fire")
        return self._fleet.of(fired[0]["pgid"])

    def go(self) -> None:
        """Let the process that pauses here go on."""
        self.path.with_suffix(".go").touch()
