"""What can be made to go wrong at the provider, order by order."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What happens to a request that moves money."""

    LOSE_ANSWER = "lose-answer"
    """It is booked, and the connection is closed without an answer."""
    ERROR_AFTER = "error-after"
    """It is booked, and answered with 500."""
    ERROR_BEFORE = "error-before"
    """It is not booked, and answered with 503."""
    IN_PROGRESS = "in-progress"
    """It is not booked, and answered with 409, as if another request were at it."""
    DECLINE = "decline"
    """It is not booked, and answered with 402: the customer's bank says no."""
    DELAY = "delay"
    """It is booked late."""
    DELAY_ANSWER = "delay-answer"
    """It is booked at once, and answered late."""


@dataclass
class Plan:
    """A fault that waits for its order's next requests.

    Attributes:
        times: Requests that it still applies to.
        seconds: For delays.
    """

    fault: Fault
    times: int = 1
    seconds: float = 0.0


class Plans:
    """Faults by order; each request takes at most one of each kind."""

    def __init__(self) -> None:
        self._plans: dict[str, list[Plan]] = defaultdict(list)
        self._lock = threading.Lock()

    def add(self, order_id: str, plan: Plan) -> None:
        """Arm a fault for an order."""
        with self._lock:
            self._plans[order_id].append(plan)

    def take(self, order_id: str) -> dict[Fault, Plan]:
        """The faults of one request; each counts one time less from now on."""
        with self._lock:
            taken: dict[Fault, Plan] = {}
            for plan in self._plans.get(order_id, []):
                if plan.times > 0 and plan.fault not in taken:
                    plan.times -= 1
                    taken[plan.fault] = plan
            return taken
