"""`make pipeline-demo`: three days of files on two real workers, one of which is killed.

Starts a Valkey and two Celery workers, and leaves nothing running.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from examples.data_pipeline import sources, warehouse
from examples.data_pipeline.model import CHECKERS, Day
from examples.data_pipeline.saga import load_day
from examples.data_pipeline.steps import SOURCE
from examples.support.fleet import victims
from examples.support.stage import SECONDS, Stage, stage, until
from examples.support.waiting import DemoError, wait_for
from fencepost import Fencepost, Status, faults
from fencepost.errors import FencepostError

WORKERS = 2
SOURCES = ("billing", "clicks", "stock")
DAYS = 3
FIRST = datetime.now(UTC).date() - timedelta(days=DAYS)
PARTITIONS, PAGES, ROWS = 3, 3, 10
CORRUPT = ("clicks", FIRST + timedelta(days=1), 2)
"""A partition whose last page can't be read, ever."""

EX_FAILED = 1
EX_BROKEN = 3
"""Exit code when rows are missing or doubled, or an invariant is broken."""


def make_files(folder: Path) -> None:
    """Write what the sources have: some pages are busy at first, one is corrupt."""
    for number in range(DAYS):
        day = FIRST + timedelta(days=number)
        for source in SOURCES:
            for partition in range(PARTITIONS):
                there = folder / source / str(day) / str(partition)
                there.mkdir(parents=True)
                for page in range(PAGES):
                    rows = [f"{source}-{day}-{partition}-{page}-{row}" for row in range(ROWS)]
                    (there / f"{page}.json").write_text(json.dumps(rows))
        (folder / SOURCES[number] / str(day) / "0" / "1.busy").touch()
    source, day, partition = CORRUPT
    (folder / source / str(day) / str(partition) / f"{PAGES - 1}.json").write_text("[")


def expected() -> dict[date, tuple[int, int]]:
    """By day: rows that have to be there, and partitions that have to be missing."""
    whole = len(SOURCES) * PARTITIONS * PAGES * ROWS
    days = {FIRST + timedelta(days=number): (whole, 0) for number in range(DAYS)}
    days[CORRUPT[1]] = (whole - PAGES * ROWS, 1)
    return days


def most_at_once(calls: list[dict[str, Any]], source: str) -> int:
    """How many calls to a source there were at the same time."""
    mine = [call for call in calls if call["source"] == source]
    moments = [(c["began"], 1) for c in mine] + [(c["ended"], -1) for c in mine]
    most = now = 0
    for _, change in sorted(moments):
        now += change
        most = max(most, now)
    return most


@dataclass(frozen=True)
class Counted:
    """What was counted when all was over.

    Attributes:
        published: By day: rows, and missing partitions.
        stored: By day: rows in the warehouse.
        at_once: By source: most calls at the same time.
    """

    published: Mapping[date, tuple[int, int]]
    stored: Mapping[date, int]
    at_once: Mapping[str, int]

    @property
    def as_it_should(self) -> bool:
        """Whether every row is there once, and no source was overrun."""
        wanted = expected()
        return (
            self.published == wanted
            and self.stored == {day: rows for day, (rows, _) in wanted.items()}
            and max(self.at_once.values()) <= (SOURCE.concurrency or 0)
        )


def play(fp: Fencepost, on: Stage, files: Path) -> Counted:
    """Load the days, lose a worker in the middle of a page, and count."""
    plan = faults.arm(on.fleet.faults, "step.after", "kill", match={"step": "fetch_page"})
    line = fp.start(load_day, Day(day=FIRST), key=str(FIRST)).execution_id
    on.fleet.lose(victims(on.fleet, [plan], SECONDS, "a worker to be killed"))
    days = expected().keys()
    wait_for(lambda: days <= warehouse.published(fp.database).keys(), SECONDS, "all days")
    # The line now waits for the end of today, and would go on for ever.
    stopped = fp.cancel(line, by="demo", why="three days are enough").execution_id
    until(fp, stopped, Status.FAILED)
    with fp.database.connect() as connection:
        stored = {day: warehouse.total(connection, day) for day in expected()}
    calls = sources.calls(files)
    at_once = {source: most_at_once(calls, source) for source in SOURCES}
    return Counted(warehouse.published(fp.database), stored, at_once)


def tell(counted: Counted, console: Console) -> None:
    """Print what was counted."""
    wanted = expected()
    for day, (rows, failed) in counted.published.items():
        right = (rows, failed) == wanted[day] and counted.stored[day] == rows
        mark = "[green]✓[/green]" if right else "[red]✗[/red]"
        missing = f", {failed} partition(s) could not be loaded" if failed else ""
        console.print(f"{mark} {day}: {rows} rows published, {counted.stored[day]} stored{missing}")
    busy = ", ".join(f"{source} {most}" for source, most in counted.at_once.items())
    console.print(f"  calls at once: {busy}; allowed: {SOURCE.concurrency} each")
    console.print(f"  a worker was killed in a page; one of {len(CHECKERS)} checkers was down")


def run(folder: Path, console: Console, *, postgres: bool) -> int:
    """Play it all; returns the exit code."""
    files = folder / "sources"
    make_files(files)
    environment = {"PIPELINE_SOURCES": str(files), "PIPELINE_DOWN": CHECKERS[-1]}
    module = "examples.data_pipeline.app"
    with stage(module, folder, environment, workers=WORKERS, postgres=postgres) as on:
        # Reads its settings from the environment, which is complete by now.
        from examples.data_pipeline.app import fp

        warehouse.open_warehouse(fp.database)
        counted = play(fp, on, files)
        tell(counted, console)
        sound = on.told(console)
        fp.database.dispose()
    return 0 if counted.as_it_should and sound else EX_BROKEN


def main(
    postgres: Annotated[bool, typer.Option(help="An embedded PostgreSQL, not SQLite.")] = False,
    runs: Annotated[Path, typer.Option(help="Where the run's folder is made.")] = Path("runs"),
) -> None:
    """Load three days of files from three sources."""
    folder = (runs / time.strftime("pipeline-%Y%m%d-%H%M%S")).resolve()
    folder.mkdir(parents=True)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    try:
        code = run(folder, console, postgres=postgres)
    except (DemoError, FencepostError) as problem:
        console.print(f"The demonstration failed: {problem}\nLogs are in {folder}.", style="red")
        code = EX_FAILED
    raise typer.Exit(code)


if __name__ == "__main__":
    typer.run(main)
