"""`Limit`: how many steps of a kind may run at once, and how often one may begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from fencepost.errors import SagaDefinitionError
from fencepost.identity import check_name

KEY_LIMIT = 150
"""Characters of what a limit's `key` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit that holds across the fleet. Steps that name the same limit share it.

    Attributes:
        name: Names it across sagas.
        concurrency: How many may run at once; None for any number. One counts from its start to
            the end of its attempt, with a dead or frozen worker until somebody has taken over.
        rate: How many may begin in each `per`; None for any number.
        per: See `rate`.
        key: Pure function from the step's input: the limit holds for each of its values.
    """

    name: str
    concurrency: int | None = None
    rate: int | None = None
    per: timedelta = timedelta(seconds=1)
    key: Callable[[Any], str] | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "limit")
        if self.concurrency is None and self.rate is None:
            raise SagaDefinitionError(f"limit {self.name!r} needs a concurrency or a rate")
        for number in (self.concurrency, self.rate):
            if number is not None and number < 1:
                raise SagaDefinitionError(f"limit {self.name!r}: numbers must be 1 or more")
        if self.per <= timedelta(0):
            raise SagaDefinitionError(f"limit {self.name!r}: `per` must be positive")

    def resource(self, value: Any) -> str:
        """What is limited for a step's input: the name, with the key if there is one.

        Raises:
            SagaDefinitionError: The key isn't a text of 1 to 150 characters.
        """
        if self.key is None:
            return self.name
        key = self.key(value)
        if not isinstance(key, str) or not 0 < len(key) <= KEY_LIMIT:  # type: ignore[redundant-expr] # callers without a type checker
            raise SagaDefinitionError(
                f"limit {self.name!r}: its key must be a text of 1 to {KEY_LIMIT} characters",
                limit=self.name,
            )
        return f"{self.name}:{key}"
