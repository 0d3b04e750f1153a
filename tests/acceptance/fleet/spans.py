"""How many were under way at once, and how close to each other they began: from stored times."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from fencepost.records import EventName, Execution
from tests.support.scene import Scene


def most_at_once(spans: Iterable[tuple[Any, Any]]) -> int:
    """The greatest number that had begun and not ended at any one time."""
    both = list(spans)
    changes = [(begin, 1) for begin, _ in both] + [(end, -1) for _, end in both]
    # An end makes room for a beginning at the same instant.
    running = itertools.accumulate(change for _, change in sorted(changes))
    return max(running)


def owned(scene: Scene, execution: Execution) -> tuple[Any, Any]:
    """From an execution's first owner to its end: the time that a dead owner held it counts."""
    first = scene.events(execution.execution_id, EventName.LEASE_ACQUIRED)[0]
    assert first.at is not None
    assert execution.ended_at is not None
    return first.at, execution.ended_at
