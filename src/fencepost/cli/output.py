"""Writing to stdout: tables for people, JSON for machines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

COLOURS = {
    "succeeded": "green",
    "active": "cyan",
    "queued": "cyan",
    "waiting": "cyan",
    "parked": "bold yellow",
    "failed": "red",
    "compensated": "yellow",
    "continued": "blue",
}


_SCALARS: dict[type, Callable[[Any], Any]] = {
    datetime: datetime.isoformat,
    timedelta: timedelta.total_seconds,
    UUID: str,
}


def console() -> Console:
    """Colours on a terminal; elsewhere plain text that is never cut to a width."""
    from rich.console import Console

    shown = Console(highlight=False)
    if not shown.is_terminal:
        shown = Console(highlight=False, width=200)
    return shown


def table(titles: Sequence[str], rows: Iterable[Sequence[RenderableType]]) -> None:
    """Print a table without a frame."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        # An id that is cut short can't be used in the next command.
        made.add_column(title, no_wrap=title in ("execution", "id"), overflow="fold")
    for row in rows:
        made.add_row(*row)
    console().print(made)


def coloured(status: str) -> RenderableType:
    """A status in its colour."""
    from rich.text import Text

    return Text(status, style=COLOURS.get(status, ""))


def as_json(value: Any) -> None:
    """Print a value as JSON on one line."""
    typer.echo(json.dumps(plain(value)))


def plain(value: Any) -> Any:
    """Records to JSON-compatible dictionaries."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    for kind, convert in _SCALARS.items():
        if isinstance(value, kind):
            return convert(value)
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def moment(at: datetime | None) -> str:
    """A time in UTC, to the millisecond."""
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def age(since: timedelta) -> str:
    """As people say it: the two largest units."""
    seconds = max(0, int(since.total_seconds()))
    parts = [(seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m")]
    parts.append((seconds % 60, "s"))
    while len(parts) > 1 and parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{number}{unit}" for number, unit in parts[:2])
