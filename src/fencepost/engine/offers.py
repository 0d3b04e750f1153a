"""What a worker passes on because it lacks the version, within bounds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from uuid import UUID

AGAIN = 1.0
"""Seconds until a process passes the same execution on again: there may be nobody who has it."""

AT_ONCE = 20
"""Executions that a process passes on in that time. In a great fleet with few workers of a
version, its backlog must not go round among all the others."""


class Offers:
    """What one process has passed on lately."""

    def __init__(self) -> None:
        self._at: OrderedDict[UUID, float] = OrderedDict()
        self._lock = threading.Lock()

    def may_offer(self, execution_id: UUID, now: float) -> bool:
        """Whether to pass an execution on; if so, it counts as passed on.

        Args:
            execution_id: Whose.
            now: Monotonic seconds.
        """
        with self._lock:
            while self._at and next(iter(self._at.values())) <= now - AGAIN:
                self._at.popitem(last=False)
            if execution_id in self._at or len(self._at) >= AT_ONCE:
                return False
            self._at[execution_id] = now
            return True
