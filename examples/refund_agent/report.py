"""The table for people, and the report for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.refund_agent.play import Cell
from examples.refund_agent.provider import Mode
from examples.refund_agent.windows import Window

SIDES = ("plain", "fencepost")


def cell_text(cell: Cell) -> Text:
    """How often the customer was refunded, and what else there is to say."""
    if cell.times > 1:
        return Text(f"{cell.times}", style="bold red")
    if cell.state == "parked":
        return Text(f"{cell.times} parked", style="yellow")
    if cell.state == "failed":
        return Text(f"{cell.times} failed", style="magenta")
    if cell.misinformed:
        return Text(f"{cell.times} mistold", style="magenta")
    return Text(f"{cell.times}", style="green" if cell.times else "bold red")


def table(windows: Sequence[Window], modes: Sequence[Mode], cells: Sequence[Cell]) -> Table:
    """Window × provider → times refunded, by each app."""
    title = "How often one customer was refunded, by the provider's ledger"
    drawn = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        caption=OFFERS,
        caption_justify="left",
        pad_edge=False,
    )
    drawn.add_column("provider:", max_width=36)
    for mode in modes:
        drawn.add_column(f"{mode}\nplain", no_wrap=True, min_width=9)
        drawn.add_column("\nFencepost", no_wrap=True, min_width=9)
    by_place = {(cell.window, cell.mode, cell.side): cell for cell in cells}
    for window in windows:
        row = [Text(window.title)]
        for mode in modes:
            found = [by_place.get((window.name, mode, side)) for side in SIDES]
            row += [cell_text(cell) if cell else Text("") for cell in found]
        drawn.add_row(*row)
    return drawn


OFFERS = (
    "dedupes: by Idempotency-Key · fences: checks fencing tokens and keys · queryable: can be asked"
    " · blind: none of these"
)
LEGEND = (
    ("2", "bold red", "refunded twice"),
    ("failed", "magenta", "the task failed, and nobody is told that the customer has the money"),
    ("mistold", "magenta", "the customer was told another sum than the ledger has"),
    ("parked", "yellow", "stopped for a person, with the reason; nothing is guessed"),
)


def print_legend(console: Console, cells: Sequence[Cell]) -> None:
    """What the words in the table mean, and why Fencepost has parked what it has."""
    for word, style, meaning in LEGEND:
        console.print(Text.assemble((f"{word:>8}", style), f"  {meaning}"))
    reasons = {reason(cell.told) for cell in cells if cell.state == "parked"}
    for why in sorted(reasons):
        console.print(Text(f"{'':10}{why}", style="yellow"))


def reason(parked: str) -> str:
    """What is peculiar to a reason for parking: no keys, no times."""
    effect, _, why = parked.partition(": ")
    return f"{effect.partition(' (')[0]}: {why.partition(';')[0]}"


def summary(cells: Sequence[Cell]) -> dict[str, Any]:
    """Totals of both apps."""
    return {
        side: {
            "cases": len(ours),
            "refunded_twice": sum(cell.times > 1 for cell in ours),
            "never_refunded": sum(cell.times == 0 and cell.state != "parked" for cell in ours),
            "failed": sum(cell.state == "failed" for cell in ours),
            "misinformed": sum(cell.misinformed and cell.times == 1 for cell in ours),
            "parked": sum(cell.state == "parked" for cell in ours),
            "model_calls": sum(cell.model_calls for cell in ours),
            "deliveries": sum(cell.deliveries for cell in ours),
        }
        for side in SIDES
        if (ours := [cell for cell in cells if cell.side == side])
    }


def write(path: Path, cells: Sequence[Cell], **more: Any) -> None:
    """Write the report."""
    report = {
        "at": datetime.now(UTC).isoformat(),
        **more,
        "summary": summary(cells),
        "cells": [cell.as_json() for cell in cells],
    }
    path.write_text(json.dumps(report, indent=2) + "\n")
