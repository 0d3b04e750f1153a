"""One real `celery worker`, to be killed, frozen, thawed, terminated and cut off."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.testing import _watching
from fencepost.testing.network import Cut, Link
from fencepost.testing.waiting import wait_for

if TYPE_CHECKING:
    import psutil

START_SECONDS = 90.0
STOP_SECONDS = 20.0
LOG_TAIL = 3_000


class Worker:
    """One `celery -A <module> worker` with all its processes, in a session of its own.

    It ends when this process does, however hard.

    Attributes:
        name: The node name, as in leases and events.
        log_path: What it prints.
        links: The ways to its servers, by service, that can be cut.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        cwd: Path,
        *,
        links: Mapping[str, Link] | None = None,
    ) -> None:
        self.name = name
        self.links = dict(links or {})
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
        _watching.watch(self.pid)

    def __repr__(self) -> str:
        return f"<Worker {self.name} pid {self.pid}>"

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

    def last_words(self) -> str:
        """The end of its log under its name, for a failed assertion."""
        return f"== {self.name} ({self.log_path})\n{self.log()[-LOG_TAIL:]}"

    def await_ready(self, timeout: float = START_SECONDS) -> None:
        """Wait until it takes messages.

        Raises:
            AssertionError: It ended, or isn't ready in time; has its last words.
        """

        def ready() -> bool:
            if not self.running:
                raise AssertionError(f"{self.name} ended:\n{self.last_words()}")
            return f"{self.name} ready." in self.log()

        wait_for(ready, timeout, lambda: f"{self.name} to be ready\n{self.last_words()}")

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to every process of the worker."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, as when the machine is lost."""
        self.signal_group(signal.SIGKILL)
        self._process.wait(STOP_SECONDS)
        wait_for(lambda: not self.processes(), STOP_SECONDS, f"the end of {self.name}")
        _watching.forget(self.pid)

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

    def cut(self, *services: str, how: Cut | str = Cut.SILENT) -> None:
        """Cut it off from servers until `heal`; the other workers notice nothing.

        Args:
            *services: `redis`, `database`, or others that the fleet was given; by default all.
            how: `silent` like a lost network, or `reset` like a server that is gone.

        Raises:
            ValueError: It has no such link: none of its variables names that server's address.
        """
        for link in self._links(services):
            link.cut(Cut(how))

    def heal(self, *services: str) -> None:
        """Connect it again: to these services, or to all.

        Raises:
            ValueError: It has no such link.
        """
        for link in self._links(services):
            link.heal()

    def _links(self, services: Sequence[str]) -> list[Link]:
        for service in services:
            if service not in self.links:
                known = ", ".join(self.links) or "none"
                raise ValueError(
                    f"{self.name} can't be cut off from {service!r}: none of its variables has"
                    f" that server's address (links: {known})"
                )
        return [self.links[service] for service in services or self.links]

    def processes(self) -> list[psutil.Process]:
        """What still runs of its session, the main process included."""
        return list(self._of_session())

    def _of_session(self) -> Iterator[psutil.Process]:
        import psutil

        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                ours = os.getsid(process.pid) == self.pid
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def frozen(self) -> bool:
        """Whether all its processes are stopped."""
        import psutil

        states = [process.status() for process in self.processes()]
        return bool(states) and all(state == psutil.STATUS_STOPPED for state in states)
