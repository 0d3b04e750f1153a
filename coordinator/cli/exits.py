"""Exit codes, the same as other programs' (sysexits.h) where there are such."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from fencepost.errors import (
    ConfigurationError,
    ExecutionNotFoundError,
    FencepostError,
    SchemaError,
    ServiceUnavailableError,
)

FAILED = 1
"""A release that isn't promoted; a scenario that did not take its course."""
BROKEN = 3
"""The verifier found an invariant broken."""
DATA = 65
NO_INPUT = 66
UNAVAILABLE = 69
CONFIG = 78

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CODES = {
    "release.invalid-file": DATA,
    "run.not-found": NO_INPUT,
    "testing.server": UNAVAILABLE,
    "runtime.unavailable": UNAVAILABLE,
    "planner.configuration": CONFIG,
}
_KINDS: tuple[tuple[type[FencepostError], int], ...] = (
    (ConfigurationError, CONFIG),
    (SchemaError, CONFIG),
    (ServiceUnavailableError, UNAVAILABLE),
    (ExecutionNotFoundError, NO_INPUT),
)


def code_for(problem: FencepostError) -> int:
    """The exit code for an error."""
    if problem.code in _CODES:
        return _CODES[problem.code]
    return next((code for kind, code in _KINDS if isinstance(problem, kind)), FAILED)


class Interrupted(SystemExit):
    """Ctrl-C, or a signal that asks the program to end: whatever it has started ends too."""


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP end the program by way of its clean-up."""

    def leave(number: int, _frame: object) -> NoReturn:
        # Once: an impatient second Ctrl-C must not break off the clean-up.
        for each in _ENDING:
            signal.signal(each, signal.SIG_IGN)
        print(f"ending ({signal.Signals(number).name})", file=sys.stderr, flush=True)
        raise Interrupted(128 + number)

    before = {
        number: signal.signal(number, leave)
        for number in _ENDING
        # What `nohup` has switched off stays off.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
