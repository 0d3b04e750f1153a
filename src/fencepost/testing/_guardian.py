"""Run one server and end it when the process that asked for it is gone.

Started as ``python -I -S _guardian.py`` with one JSON line on standard input. It prints the
server's pid, waits, and exits when the server has ended with all of its children. Standard
input stays open for as long as the parent lives, so end-of-file means that the parent died,
however hard; its parent process id is watched as well, because a fork of the parent may have
inherited the other end of the pipe.

Standard library only and no package imports: it has to start in a few milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 5.0
POLL_SECONDS = 0.5


def prctl(option: int, value: int) -> None:
    """Make the Linux system call of this name through the C library that is already loaded."""
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent, the guardian, is gone."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the server in a session of its own, so that a terminal's Ctrl-C does not reach it."""
    identity: dict[str, Any] = {}
    if order["uid"] is not None:
        identity = {"user": order["uid"], "group": order["gid"], "extra_groups": []}
    with Path(order["log"]).open("ab") as log:
        return subprocess.Popen(
            order["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=order["cwd"],
            env=order["env"],
            start_new_session=True,
            # Should this process be killed too. Safe here: it has one thread, for all its life.
            preexec_fn=die_with_parent if LINUX else None,  # noqa: PLW1509 - see above
            **identity,
        )


def children() -> Iterator[int]:
    """The pids of this process's children; on Linux that includes adopted orphans."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The second field, the name, is in parentheses and may hold anything.
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            yield int(status.parent.name)


def bury_orphans() -> None:
    """End and reap what a killed server left behind, such as PostgreSQL's backends."""
    deadline = time.monotonic() + GRACE_SECONDS
    while LINUX and time.monotonic() < deadline:
        for pid in children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def stop(server: subprocess.Popen[bytes], stop_signal: int) -> None:
    """Ask the server to end, then make it."""
    server.send_signal(signal.SIGCONT)  # a frozen server would never see the next signal
    server.send_signal(stop_signal)
    try:
        server.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def watch(server: subprocess.Popen[bytes], parent: int, wakeup: int) -> bool:
    """Wait until the server has ended (True) or nobody needs it any more (False)."""
    while server.poll() is None:
        readable, _, _ = select.select([sys.stdin.fileno(), wakeup], [], [], POLL_SECONDS)
        if wakeup in readable and signal.SIGTERM in os.read(wakeup, 64):
            return False
        if sys.stdin.fileno() in readable and not os.read(sys.stdin.fileno(), 64):
            return False
        if os.getppid() != parent:
            return False
    return True


def main() -> None:
    """Read the order, run the server, clean up behind it."""
    parent = os.getppid()
    # Bytes by hand: a buffered reader would swallow what select() has to see.
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(sys.stdin.fileno(), 65536)
        if not piece:
            return
        line += piece
    order = json.loads(line)

    wakeup, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)

    server = start(order)
    print(server.pid, flush=True)
    if not watch(server, parent, wakeup):
        stop(server, order["stop_signal"])
        bury_orphans()
        for path in order["remove"]:
            shutil.rmtree(path, ignore_errors=True)
        return
    bury_orphans()


if __name__ == "__main__":
    main()
