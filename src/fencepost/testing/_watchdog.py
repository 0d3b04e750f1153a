"""End process groups when the process that started them is gone.

Started as ``python -I -S _watchdog.py``. Each line on standard input is a process group: its
number, or its number after a minus sign when it has been ended and is to be forgotten. Standard
input stays open for as long as the parent lives; as in `_guardian.py`, the parent's process id is
watched as well.

Standard library only and no package imports: it has to start in a few milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

POLL_SECONDS = 0.5


def heard(groups: set[int], text: bytes) -> bytes:
    """Take whole lines in; returns what is left of the last one."""
    *lines, rest = text.split(b"\n")
    for line in lines:
        number = int(line)
        if number < 0:
            groups.discard(-number)
        else:
            groups.add(number)
    return rest


def main() -> None:
    """Listen until nobody speaks any more, then end all groups that are left."""
    parent = os.getppid()
    groups: set[int] = set()
    rest = b""
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], POLL_SECONDS)
        if readable:
            piece = os.read(sys.stdin.fileno(), 65536)
            if not piece:
                break
            rest = heard(groups, rest + piece)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
