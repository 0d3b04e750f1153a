"""`Limit`: how many steps of a kind may run at once, and how often one may begin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fencepost.errors import SagaDefinitionError
from fencepost.identity import check_name

KEY_LIMIT = 150
"""Characters of what a limit's `key` returns."""

PRESENT = timedelta(seconds=60)
"""Who waits for a turn has to ask this often, and to come this soon once it is called. Others
aren't held up by one whose workers are gone; it keeps its place for when it asks again."""

LATE = timedelta(seconds=10)
"""A start that nobody has used for so long is given anew, if there is a rate: what an outage has
held up must not begin all at once."""

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit that holds across the fleet. Steps that name the same limit share it.

    Turns are given in the order in which they were asked for. What was turned back (cancelled,
    say), or was taken over from a frozen worker, isn't counted any more, though its old body may
    run on until it notices.

    Attributes:
        name: Names it across sagas.
        concurrency: How many may run at once; None for any number. One counts from its start to
            the end of its attempt, with a dead or frozen worker until somebody has taken over.
        rate: How many may begin in each `per`; None for any number. Starts are given evenly, one
            in each `per / rate`, so that no `per` has more of them, wherever it begins. One that
            begins late doesn't delay the others. Going on after a takeover is no new start;
            another attempt is.
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
            SagaDefinitionError: The key isn't a text of 1 to 150 printable characters.
        """
        if self.key is None:
            return self.name
        key = self.key(value)
        if not _is_key(key):
            raise SagaDefinitionError(
                f"limit {self.name!r}: its key must be a text of 1 to {KEY_LIMIT} printable"
                " characters",
                limit=self.name,
            )
        return f"{self.name}:{key}"

    def spacing(self, resolution: timedelta = MICROSECOND) -> timedelta:
        """The time between two starts: `per / rate`, zero without a rate.

        Args:
            resolution: Of the times that are stored. It is rounded up to that, for else there
                would be one start too many in a `per` that `rate` doesn't divide.
        """
        if self.rate is None:
            return timedelta(0)
        return -(-self.per // (self.rate * resolution)) * resolution


@dataclass(frozen=True, slots=True)
class Usage:
    """What a limited resource is used by.

    Attributes:
        resource: The limit's name, with its key if it has one.
        running: Those that have been given a start, be it in the future.
        waiting: Those whose turn hasn't come.
    """

    resource: str
    running: int
    waiting: int


def next_start(
    next_at: datetime | None, given_up: Iterable[datetime], kept: datetime | None, now: datetime
) -> datetime | None:
    """When the next may begin, after starts have been given up that nobody has used.

    Only those after all that are kept come back: the others' times have been told already.

    Args:
        next_at: When it was to be, if there was a start before.
        given_up: Those starts; the past ones among them are gone for good.
        kept: The last start of those who still have one.
        now: The store's time.
    """
    free = [start for start in given_up if start > now and (kept is None or start > kept)]
    return min(free, default=next_at)


def _is_key(key: object) -> bool:
    return isinstance(key, str) and 0 < len(key) <= KEY_LIMIT and key.isprintable()
