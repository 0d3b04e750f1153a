"""What a run's timeline shows: lanes, segments and marks. Times are seconds since it began."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Ended(StrEnum):
    """How a stretch of ownership came to its end."""

    DONE = "done"
    """By the owner: a checkpoint after which it waits or has ended, or a handing back."""
    LOST = "lost"
    """Somebody else took over, or it was turned back: its owner had not given it up."""
    OPEN = "open"
    """It isn't over."""


class Kind(StrEnum):
    """What a mark is about."""

    STEP = "step"
    UNDO = "undo"
    TURNED = "turned"
    TAKEOVER = "takeover"
    REFUSED = "refused"
    EFFECT = "effect"
    DOUBT = "doubt"
    PARKED = "parked"
    PERSON = "person"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Segment:
    """An owner's time with an execution under one epoch.

    Attributes:
        name: Of the execution, short.
        colour: Number of the execution's colour.
        row: Within its lane, from 0: segments of one row don't overlap.
    """

    execution_id: str
    name: str
    owner: str
    epoch: int
    begin: float
    end: float
    ended: Ended
    colour: int
    row: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """Something at one moment.

    Attributes:
        lane: Whose; empty for what concerns no worker.
        text: In words.
        about: The execution's short name.
    """

    at: float
    lane: str
    kind: Kind
    text: str
    about: str = ""
    execution_id: str = ""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch in which something was done to a worker from outside: frozen, cut off.

    Attributes:
        end: None where it lasts.
    """

    lane: str
    begin: float
    end: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One worker.

    Attributes:
        rows: How many segments lie above each other at most.
    """

    name: str
    segments: tuple[Segment, ...]
    rows: int


@dataclass(frozen=True)
class Timeline:
    """A run, ready to be drawn.

    Attributes:
        began: The moment from which all times are counted, by the database's clock.
        length: Seconds.
        executions: Name, saga, status and colour of each.
    """

    began: datetime
    length: float
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]
    spans: tuple[Span, ...] = ()
    executions: tuple[tuple[str, str, str, int], ...] = field(default=())
