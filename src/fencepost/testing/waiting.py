"""Waiting for facts: bounded, and never a blind sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.02


def wait_for(
    probe: Callable[[], T],
    timeout: float,
    what: str | Callable[[], str],
    *,
    poll: float = POLL_SECONDS,
) -> T:
    """The first truthy answer of a probe.

    Args:
        probe: Asked again and again.
        timeout: Seconds.
        what: Names the fact that is waited for, in the error; a function is asked only then.
        poll: Seconds between two questions.

    Raises:
        AssertionError: There was none in time.
    """
    give_up = time.monotonic() + timeout
    while not (answer := probe()):
        if time.monotonic() >= give_up:
            named = what if isinstance(what, str) else what()
            raise AssertionError(f"after {timeout:g} s still {answer!r}: waiting for {named}")
        time.sleep(poll)
    return answer
