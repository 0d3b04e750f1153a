"""How often a step is tried again, and after how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from tenacity import wait_random_exponential

from fencepost.errors import SagaDefinitionError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Attempts, exponential back-off with full jitter, and which errors are worth another try.

    Attributes:
        attempts: How often a step is tried in all, at least 1.
        first_delay: Upper bound of the wait before the second attempt.
        max_delay: Upper bound of any wait.
        retry_on: Only these errors (and their subclasses) are tried again.
        give_up_on: Never these, even where `retry_on` names a base class of theirs.
    """

    attempts: int = 3
    first_delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(minutes=1)
    retry_on: tuple[type[Exception], ...] = (ConnectionError, TimeoutError)
    give_up_on: tuple[type[Exception], ...] = field(default=())

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise SagaDefinitionError(f"attempts must be 1 or more, not {self.attempts}")
        if self.first_delay < timedelta(0) or self.max_delay < self.first_delay:
            raise SagaDefinitionError("delays must satisfy 0 <= first_delay <= max_delay")

    def delay_after(self, attempt: int, error: Exception) -> timedelta | None:
        """The wait before the next attempt, or None when the step has failed for good.

        Args:
            attempt: The number of the attempt that failed, from 1.
            error: What it raised.
        """
        if attempt >= self.attempts or isinstance(error, self.give_up_on):
            return None
        if not isinstance(error, self.retry_on):
            return None
        wait = wait_random_exponential(
            multiplier=self.first_delay.total_seconds(), max=self.max_delay.total_seconds()
        )
        state = cast(Any, SimpleNamespace(attempt_number=attempt))
        return timedelta(seconds=wait(state))


STEP_RETRIES = RetryPolicy()
"""For steps: only what the network did is tried again."""

UNDO_RETRIES = RetryPolicy(attempts=10, retry_on=(Exception,))
"""For compensations: everything is tried again, because giving up parks the execution."""

PIVOT_RETRIES = UNDO_RETRIES
"""For steps after the pivot: there is no way but forward."""
