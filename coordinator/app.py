"""The Celery app: `celery -A coordinator.app worker`, and everything else that takes an app."""

from __future__ import annotations

import sys
from typing import NoReturn

from coordinator import lifeline
from coordinator.composition import compose
from coordinator.settings import EX_CONFIG, load
from fencepost.errors import ConfigurationError


class NotConfigured(SystemExit):
    """The import can't succeed. Ends the program instead of showing it a traceback.

    Celery prints the traceback of every `Exception` that importing an app raises.
    """


def _end(problem: ConfigurationError) -> NoReturn:
    print(f"{problem.code}: {problem}", file=sys.stderr, flush=True)
    raise NotConfigured(EX_CONFIG)


try:
    _factory = compose(load())
except ConfigurationError as _problem:
    _end(_problem)

app = _factory.app
fp = _factory.fp
lifeline.hold()
