"""Stopping a call at each line of a sink's code while another call runs to its end.

Two threads that race seldom meet in a window of a few microseconds. Here one of them is stopped
in it: at every line, one after the other, so that a check which isn't one step with its write is
found for certain, as far as both are made by Python code in this process.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

PATIENCE = 0.02, 0.25
"""Seconds, at least and at most, after which the other call counts as held up by a lock, and the
first one goes on. Too short a time finds less, but never anything wrong."""
OF_USUAL = 5
"""How much longer than usual it may take."""
TIMEOUT = 60.0
MOST_LINES = 2_000


@dataclass
class Call:
    """A call in a thread of its own.

    Attributes:
        result: What it returned.
        error: What it raised instead.
    """

    work: Callable[[], Any]
    result: Any = None
    error: Exception | None = None
    _thread: threading.Thread | None = None
    _done: threading.Event = field(default_factory=threading.Event)

    def start(self, before: Callable[[], None] = lambda: None) -> None:
        """Begin; `before` runs first, in its thread."""

        def run() -> None:
            try:
                before()
                self.result = self.work()
            except Exception as error:  # noqa: BLE001 - it is the call's outcome
                self.error = error
            finally:
                sys.settrace(None)
                self._done.set()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it ends in time."""
        return self._done.wait(seconds)

    def join(self) -> None:
        """Wait for its end.

        Raises:
            AssertionError: It doesn't end.
        """
        assert self._done.wait(TIMEOUT), "a call to the sink doesn't end"


class _Stop:
    """Stops a thread at the n-th line that it comes to in certain files."""

    def __init__(self, files: frozenset[str], line: int) -> None:
        self._files = files
        self._left = line
        self.reached = threading.Event()
        self.go = threading.Event()

    def install(self) -> None:
        sys.settrace(self._enter)

    def _enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        if self.reached.is_set() or frame.f_code.co_filename not in self._files:
            return None
        return self._line

    def _line(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        if event != "line" or self.reached.is_set():
            return self._line
        if self._left:
            self._left -= 1
            return self._line
        self.reached.set()
        self.go.wait(TIMEOUT)
        return self._line


def at_every_line(
    files: Iterable[str],
    make: Callable[[], tuple[Call, Call, Callable[[], None]]],
) -> int:
    """Run pairs of calls; the second one each time that the first has come one line further.

    Args:
        files: Names of the source files in which the first call is stopped.
        make: Gives a new pair, and what must hold when both have ended.

    Returns:
        At how many lines the first call was stopped.
    """
    names = frozenset(files)
    usual: list[float] = []
    for line in range(MOST_LINES):
        first, second, check = make()
        stop = _Stop(names, line)
        first.start(before=stop.install)
        while not stop.reached.wait(0.001) and not first.wait(0):
            pass
        asked = time.monotonic()
        second.start()
        if second.wait(_patience(usual)):
            usual.append(time.monotonic() - asked)
        stop.go.set()
        first.join()
        second.join()
        check()
        if not stop.reached.is_set():
            return line
    raise AssertionError(f"a write of this sink runs through more than {MOST_LINES} lines")


def _patience(usual: list[float]) -> float:
    least, most = PATIENCE
    if not usual:
        return most
    return min(most, max(least, OF_USUAL * statistics.median(usual)))
