"""`fencepost verify`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

import typer

from fencepost.cli import output, services
from fencepost.cli.exits import Exit
from fencepost.verify import InvariantReport, Report, Verdict, verify

if TYPE_CHECKING:
    from rich.console import RenderableType

STYLES = {
    Verdict.OK: "green",
    Verdict.VIOLATED: "bold red",
    Verdict.NOTHING: "yellow",
    Verdict.NOT_APPLICABLE: "dim",
}
SHOWN = 20
"""Violations of one invariant that are printed; `--json` has all."""

LIVE = ("queued", "active", "waiting", "parked")


def verify_stored(
    database_url: str | None,
    redis_url: str | None,
    broker_url: str | None,
    run: str | None,
    settle: float,
    *,
    redis_prefix: str,
    as_json: bool,
) -> None:
    """Run the verifier, print its report, and exit with 1 if anything is violated."""
    if redis_url is None and broker_url is not None and broker_url.startswith("redis"):
        # As a fleet does that is told of no other place for its leases.
        redis_url = broker_url
    report = verify(
        services.needed(database_url),
        redis_url,
        broker_url,
        run=run,
        settle=timedelta(seconds=settle),
        redis_prefix=redis_prefix,
    )
    if as_json:
        typer.echo(report.model_dump_json())
    else:
        show_report(report)
    if not report.ok:
        raise typer.Exit(Exit.FOUND)


def show_report(report: Report) -> None:
    """Print a report: a line for each invariant, then what is violated."""
    what = "the whole database" if report.run is None else f"run {report.run}"
    typer.echo(f"{what}, {_counts(report.executions.items())}, in {report.database}\n")
    output.table(("#", "invariant", "verdict", "examined"), [_row(i) for i in report.invariants])
    for line in report.invariants:
        for violation in line.violations[:SHOWN]:
            typer.echo(f"\n{line.number} {violation}")
            for name, value in violation.facts.items():
                typer.echo(f"    {name}: {value}")
        if len(line.violations) > SHOWN:
            typer.echo(f"\n{line.number} ... and {len(line.violations) - SHOWN} more (--json)")
    typer.echo()
    for line in report.invariants:
        for note in line.notes:
            typer.echo(f"note on {line.number}: {note}")
    typer.echo(f"\n{_sentence(report)}")


def _row(line: InvariantReport) -> tuple[RenderableType, ...]:
    from rich.text import Text

    verdict = str(line.verdict)
    if line.violations:
        verdict = f"{verdict} ({len(line.violations)})"
    return (
        str(line.number),
        line.title,
        Text(verdict, style=STYLES[line.verdict]),
        _counts(line.examined.items()),
    )


def _counts(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts) or "nothing"


def _sentence(report: Report) -> str:
    if not report.ok:
        numbers = ", ".join(map(str, report.violated))
        return f"VIOLATED: {len(report.violations)} violations of invariant {numbers}"
    live = sum(report.executions.get(status, 0) for status in LIVE)
    still = f"; {live} executions have not ended, and what they do next is not proved" * bool(live)
    return f"no violation found{still}"
