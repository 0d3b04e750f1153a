"""One server process under a guardian that ends it when this process is gone."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fencepost.errors import FencepostError

GUARDIAN = Path(__file__).with_name("_guardian.py")
PORTS = range(20_000, 32_000)
KEPT_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class ServerError(FencepostError):
    """An embedded server could not be found, started or stopped."""

    code = "testing.server"


@dataclass(frozen=True)
class Account:
    """The operating-system account that a server runs under."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Order:
    """What to run, and how.

    Attributes:
        argv: Program and arguments.
        cwd: Working directory; the account must be able to enter it.
        log: File to which the server's output is appended; opened by the caller's account.
        stop_signal: The signal that asks for a clean and quick shutdown.
        account: Another account to run under; None keeps the caller's.
        remove: Folders that are removed if the caller dies without stopping the server.
    """

    argv: Sequence[str]
    cwd: Path
    log: Path
    stop_signal: signal.Signals
    account: Account | None = None
    remove: Sequence[Path] = field(default_factory=tuple)

    def to_json(self) -> str:
        """The order as the guardian's one line of input."""
        return json.dumps(
            {
                "argv": list(self.argv),
                "cwd": str(self.cwd),
                "log": str(self.log),
                "env": server_environment(),
                "stop_signal": int(self.stop_signal),
                "uid": self.account.uid if self.account else None,
                "gid": self.account.gid if self.account else None,
                "remove": [str(path) for path in self.remove],
            }
        )


def server_environment() -> Mapping[str, str]:
    """A small environment: English messages (some are read), UTC, nothing of the caller's."""
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def free_port() -> int:
    """A TCP port that is free on 127.0.0.1 now.

    It lies below the range from which systems draw ports for outgoing connections: otherwise,
    while a server is down, a client that keeps knocking at its port could be given that very
    port and even connect to itself.

    Raises:
        ServerError: No free port was found.
    """
    for _ in range(500):
        # Not `random`: a seeded test run must not make two servers draw the same ports.
        port = PORTS.start + secrets.randbelow(len(PORTS))
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerError(f"no free port on 127.0.0.1 between {PORTS.start} and {PORTS.stop}")


class GuardedProcess:
    """A running server and its guardian."""

    def __init__(self, order: Order) -> None:
        self._stop_signal = order.stop_signal
        with order.log.open("ab") as log:
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARDIAN)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._guardian.stdin is not None
        assert self._guardian.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._guardian.stdin.write(order.to_json().encode() + b"\n")
            self._guardian.stdin.flush()
        answer = self._guardian.stdout.readline()
        self._guardian.stdout.close()
        self._lock = threading.Lock()
        if not answer:
            self._guardian.wait()
            tail = order.log.read_text(errors="replace")[-2000:]
            raise ServerError(f"could not run {order.argv[0]}:\n{tail}", log=str(order.log))
        self.pid = int(answer)

    @property
    def running(self) -> bool:
        """Whether the server, or anything that it left behind, still runs."""
        with self._lock:
            return self._guardian.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server itself, unless it has ended."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def stop(self, seconds: float = 10.0) -> None:
        """Ask the server to end, kill it if it does not, and wait until all of it is gone."""
        self.signal(signal.SIGCONT)
        self.signal(self._stop_signal)
        if not self._ended(seconds):
            self.kill()

    def kill(self, seconds: float = 10.0) -> None:
        """End the server with SIGKILL and wait until all of it is gone."""
        self.signal(signal.SIGKILL)
        if not self._ended(seconds):
            raise ServerError(f"process {self.pid} does not end", pid=self.pid)

    def _ended(self, seconds: float) -> bool:
        try:
            with self._lock:
                self._guardian.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        assert self._guardian.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._guardian.stdin.close()
        return True
