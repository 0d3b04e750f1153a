"""What goes from step to step. All of it is stored as JSON."""

from __future__ import annotations

from datetime import date, timedelta

from pydantic import BaseModel

from fencepost import ChildResult


class Day(BaseModel):
    """A day to be loaded.

    Attributes:
        last: After it no more days are loaded.
    """

    day: date
    last: date

    @property
    def next(self) -> Day:
        """The day after it."""
        return Day(day=self.day + timedelta(days=1), last=self.last)


class Partition(BaseModel):
    """A part of a source's day."""

    day: date
    source: str
    number: int


class Batch(BaseModel):
    """All partitions of a day."""

    partitions: list[Partition]


class Cursor(BaseModel):
    """How far a partition is loaded.

    Attributes:
        page: The next page; None when there is none.
        rows: Loaded so far.
    """

    partition: Partition
    page: int | None = 0
    rows: int = 0


class Loaded(BaseModel):
    """A partition that is in the warehouse."""

    partition: Partition
    rows: int


class Failed(BaseModel):
    """A partition that could not be loaded; nothing of it is in the warehouse."""

    why: str


class Summary(BaseModel):
    """What came of a day's partitions."""

    day: date
    loaded: list[Loaded]
    failed: list[Failed]

    @property
    def rows(self) -> int:
        """Of all loaded partitions."""
        return sum(one.rows for one in self.loaded)


class Sample(BaseModel):
    """A question to one of several checkers: are these partitions' rows all there?"""

    checker: str
    partitions: list[Loaded]


class Verdict(BaseModel):
    """A checker's answer.

    Attributes:
        rows: That it has counted in the warehouse.
    """

    checker: str
    rows: int


def partitions_of(batch: Batch) -> list[Partition]:
    """What is fanned out over."""
    return batch.partitions


def more_pages(cursor: Cursor) -> bool:
    """Whether a partition has another page."""
    return cursor.page is not None


def source_of(cursor: Cursor) -> str:
    """Whose limit a page counts against."""
    return cursor.partition.source


def samples_of(summary: Summary) -> list[Sample]:
    """One question to each checker."""
    return [Sample(checker=name, partitions=summary.loaded) for name in CHECKERS]


CHECKERS = ("by-partition", "by-total", "by-audit")


def another_day(day: Day) -> bool:
    """Whether there is a day after it to be loaded."""
    return day.day < day.last


Results = list[ChildResult[Loaded]]
"""How each partition ended."""
