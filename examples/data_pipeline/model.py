"""What goes from step to step. All of it is stored as JSON."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from pydantic import BaseModel

from fencepost import ChildResult


class Day(BaseModel):
    """A day to be loaded."""

    day: date

    @property
    def next(self) -> Day:
        """The day after it."""
        return Day(day=self.day + timedelta(days=1))


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


def day_over(day: Day) -> datetime:
    """When all of a day's files are there."""
    return datetime.combine(day.next.day, time(0, 5), UTC)


Results = list[ChildResult[Loaded]]
"""How each partition ended."""
