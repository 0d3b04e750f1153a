"""Waiting for facts, in demonstrations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL = 0.05

abandoned = threading.Event()
"""Set when nobody waits for the outcome any more."""


class DemoError(Exception):
    """The demonstration itself failed: a process did not start, or something took too long."""


def wait_for(probe: Callable[[], T], seconds: float, what: str) -> T:
    """The first truthy answer of a probe.

    Raises:
        DemoError: There is none in time, or the demonstration was abandoned.
    """
    give_up = time.monotonic() + seconds
    while not (found := probe()):
        if time.monotonic() > give_up:
            raise DemoError(f"waited {seconds:.0f} s in vain for {what}")
        if abandoned.wait(POLL):
            raise DemoError(f"abandoned while waiting for {what}")
    return found
