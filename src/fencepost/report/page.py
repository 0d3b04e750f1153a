"""A timeline as one HTML page that needs nothing else: no network, no script of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.report.model import Kind, Timeline

WIDTH = 1_200
LEFT = 130
ROW = 22
GAP = 16
TOP = 34

SYMBOLS: Mapping[Kind, str] = {
    Kind.STEP: "✓",
    Kind.UNDO: "↶",
    Kind.TURNED: "⟲",
    Kind.TAKEOVER: "⇥",
    Kind.REFUSED: "✗",
    Kind.EFFECT: "◆",
    Kind.DOUBT: "?",
    Kind.PARKED: "‖",
    Kind.PERSON: "☺",
    Kind.FAULT: "⚡",
}
"""What stands for each kind, so that colours alone carry nothing."""


@dataclass(frozen=True)
class Section:
    """A table below the picture.

    Attributes:
        rows: Texts; a truth value is shown as a tick or a cross.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class _Place:
    name: str
    top: int
    height: int


def render(
    title: str,
    timeline: Timeline,
    *,
    summary: Sequence[str] = (),
    sections: Sequence[Section] = (),
) -> str:
    """Make the page.

    Args:
        title: Its heading.
        timeline: What is drawn.
        summary: Sentences above the picture.
        sections: Tables below it.

    Raises:
        ConfigurationError: Jinja2 isn't installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise ConfigurationError(
            "reports need Jinja2", next='pip install "fencepost[report]"'
        ) from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = (resources.files(__package__) / "templates" / "report.html.j2").read_text("utf-8")
    places, top = {}, TOP
    for lane in timeline.lanes:
        height = lane.rows * ROW
        places[lane.name] = _Place(lane.name, top, height)
        top += height + GAP
    scale = (WIDTH - LEFT - 20) / max(timeline.length, 0.001)
    return environment.from_string(source).render(
        title=title,
        timeline=timeline,
        summary=summary,
        sections=sections,
        places=places,
        height=top + 10,
        width=WIDTH,
        left=LEFT,
        row=ROW,
        x=lambda seconds: round(LEFT + seconds * scale, 1),
        ticks=_ticks(timeline.length),
        symbols=SYMBOLS,
        hue=lambda number: (number * 137) % 360,
    )


def _ticks(length: float) -> list[float]:
    """About ten round numbers of seconds."""
    for step in (
        0.01,
        0.02,
        0.05,
        0.1,
        0.2,
        0.5,
        1,
        2,
        5,
        10,
        20,
        30,
        60,
        120,
        300,
        600,
        1800,
        3600,
    ):
        if length / step <= 12:
            return [round(number * step, 2) for number in range(int(length / step) + 1)]
    return [0.0, length]
