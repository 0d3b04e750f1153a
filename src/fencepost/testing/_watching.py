"""This process's watchdog: ends the workers that it leaves behind, however hard it ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

PROGRAM = Path(__file__).with_name("_watchdog.py")
HOME_SECONDS = 5.0

_lock = threading.Lock()
_dogs: dict[int, subprocess.Popen[bytes]] = {}


def watch(group: int) -> None:
    """Have a process group ended with SIGKILL if this process ends first."""
    _tell(str(group))


def forget(group: int) -> None:
    """A group has ended: its number may be somebody else's by and by."""
    _tell(f"-{group}")


def _tell(line: str) -> None:
    with _lock:
        dog = _dogs.get(os.getpid())
        if dog is None or dog.poll() is not None:
            dog = _dogs[os.getpid()] = _start()
        assert dog.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            dog.stdin.write(f"{line}\n".encode())
            dog.stdin.flush()


def _start() -> subprocess.Popen[bytes]:
    dog = subprocess.Popen(
        [sys.executable, "-I", "-S", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Ctrl-C in a terminal reaches our whole group, and it has to outlive that.
        start_new_session=True,
    )
    atexit.register(_send_home, os.getpid(), dog)
    return dog


def _send_home(owner: int, dog: subprocess.Popen[bytes]) -> None:
    if owner != os.getpid():
        return  # a fork's end is not its owner's
    assert dog.stdin is not None
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        dog.stdin.close()
        dog.wait(HOME_SECONDS)
