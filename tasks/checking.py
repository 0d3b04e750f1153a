"""Running an integration check: a process with a deadline, little environment, bounded output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ledger.redact import secret_values, storable
from ledger.vocabulary import CheckReport

KEPT_BYTES = 64 * 1024
"""How much of each stream is held in memory, counted from its end."""

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "LD_LIBRARY_PATH")
_LOOK_EVERY = 0.2
_DRAIN_SECONDS = 5.0


def environment(home: Path) -> dict[str, str]:
    """What the check sees: none of the worker's secrets, and a home of its own.

    Args:
        home: For `HOME` and `TMPDIR`.
    """
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return kept | {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONUNBUFFERED": "1",
    }


def command_for(check: Path, modules: Path) -> list[str]:
    """How a check is started: with the modules' folder as its only argument."""
    start = [sys.executable, str(check)] if check.suffix == ".py" else [str(check)]
    return [*start, str(modules)]


def run_check(
    command: Sequence[str],
    *,
    folder: Path,
    home: Path,
    timeout: float,
    still_wanted: Callable[[], None],
) -> CheckReport:
    """Run a check to its end, or to its deadline; then all that it started is killed.

    Args:
        command: From `command_for`.
        folder: Its working directory.
        home: From which it gets its environment.
        timeout: Seconds.
        still_wanted: Called several times a second; what it raises ends the check.
    """
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as problem:
        return _report(command, None, started, _Tail(), _Tail(f"can't start: {problem}\n".encode()))
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = _Tail(), _Tail()
    readers = [out.follow(process.stdout), err.follow(process.stderr)]
    try:
        timed_out = not _wait(process, started + timeout, still_wanted)
    finally:
        # Also after a good end: what it left running must not outlive it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for reader in readers:
            reader.join(_DRAIN_SECONDS)
    exit_code = None if timed_out else process.returncode
    return _report(command, exit_code, started, out, err, timed_out=timed_out)


@dataclass
class _Tail:
    data: bytes = b""
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = len(self.data)

    def follow(self, stream: IO[bytes]) -> threading.Thread:
        def read() -> None:
            with stream:
                while chunk := os.read(stream.fileno(), KEPT_BYTES):
                    self.total += len(chunk)
                    self.data = (self.data + chunk)[-KEPT_BYTES:]

        reader = threading.Thread(target=read, daemon=True, name="check-output")
        reader.start()
        return reader

    def text(self, secrets: Sequence[str]) -> str:
        return storable(self.data, cut=self.total > len(self.data), secrets=secrets)


def _wait(
    process: subprocess.Popen[bytes], deadline: float, still_wanted: Callable[[], None]
) -> bool:
    while (left := deadline - time.monotonic()) > 0:
        still_wanted()
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(_LOOK_EVERY, left))
            return True
    return False


def _report(
    command: Sequence[str],
    exit_code: int | None,
    started: float,
    out: _Tail,
    err: _Tail,
    *,
    timed_out: bool = False,
) -> CheckReport:
    secrets = secret_values()
    return CheckReport(
        command=tuple(command),
        exit_code=exit_code,
        timed_out=timed_out,
        duration_ms=round((time.monotonic() - started) * 1000),
        stdout=out.text(secrets),
        stderr=err.text(secrets),
        stdout_bytes=out.total,
        stderr_bytes=err.total,
    )
