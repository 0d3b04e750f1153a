"""What is shown as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from coordinator.claims import Claim
from coordinator.phrases import worker_of
from fencepost.records import Event
from fencepost.verify import InvariantReport, Report, Verdict

VIOLATIONS_SHOWN = 3
DIGEST_SHOWN = 19
_VERDICTS = {
    Verdict.OK: ("ok", "green"),
    Verdict.VIOLATED: ("BROKEN", "bold red"),
    Verdict.NOTHING: ("nothing to check", "yellow"),
    Verdict.NOT_APPLICABLE: ("not asked", "dim"),
}


def invariants(report: Report) -> Table:
    """The verifier's nine lines, each with what it looked at."""
    table = Table(title="The invariants, from stored facts", title_justify="left", expand=False)
    table.add_column("#", justify="right")
    table.add_column("invariant", ratio=1)
    table.add_column("verdict", no_wrap=True)
    table.add_column("looked at")
    for line in report.invariants:
        word, style = _VERDICTS[line.verdict]
        title, _, _ = line.title.partition(":")
        table.add_row(str(line.number), title, Text(word, style=style), _looked_at(line))
        for violation in line.violations[:VIOLATIONS_SHOWN]:
            table.add_row("", Text(f"{violation.code}: {violation.message}", style="red"))
        more = len(line.violations) - VIOLATIONS_SHOWN
        if more > 0:
            table.add_row("", Text(f"and {more} more", style="red"))
    return table


def _looked_at(line: InvariantReport) -> str:
    return ", ".join(f"{count} {what}" for what, count in line.examined.items())


def refusals(events: Iterable[Event]) -> Table:
    """What a zombie tried to write."""
    table = Table(title="Refused, and on record", title_justify="left")
    for column in ("event", "by", "writer", "its epoch", "current epoch", "digest of the payload"):
        table.add_column(column, no_wrap=True)
    for event in events:
        table.add_row(
            event.name,
            event.sink,
            worker_of(event.owner),
            str(event.epoch),
            str(event.current_epoch),
            (event.payload_digest or "")[:DIGEST_SHOWN] + "…",
        )
    return table


def claims(found: Sequence[Claim]) -> Table:
    """What was promised, and whether it was so."""
    table = Table(title="What must be so, read back from SQL and disk", title_justify="left")
    table.add_column("")
    table.add_column("claim")
    table.add_column("found")
    for claim in found:
        style = "green" if claim.held else "bold red"
        mark = Text("✓" if claim.held else "✗", style=style)
        table.add_row(mark, Text(claim.what), Text(claim.shown, style="" if claim.held else style))
    return table
