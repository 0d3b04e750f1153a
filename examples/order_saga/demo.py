"""`make order-demo`: four orders on two real workers, one of which is killed.

Starts a Valkey, a payment provider and two Celery workers, and leaves nothing running.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.order_saga import warehouse
from examples.order_saga.stories import Shop, Told
from examples.refund_agent.processes import providers
from examples.refund_agent.provider import Mode
from examples.support.stage import stage
from examples.support.waiting import DemoError
from fencepost.errors import FencepostError

WORKERS = 2
REMIND_AFTER = timedelta(seconds=2)
"""A shop would say days."""

EX_FAILED = 1
EX_BROKEN = 3
"""Exit code when an order did not end as it should, or an invariant is broken."""


def tell(told: Told, console: Console) -> None:
    """Print a story in a few lines."""
    mark = "[green]✓[/green]" if told.as_it_should else "[red]✗[/red]"
    console.print(f"{mark} {told.title}")
    console.print(f"    {told.status}: {told.said}")
    counted = ", ".join(f"{what} {found}" for what, (found, _) in told.facts.items())
    console.print(f"    [dim]{counted}[/dim]")


def run(folder: Path, console: Console, *, postgres: bool) -> int:
    """Play it all; returns the exit code."""
    with providers(folder / "provider", [Mode.DEDUPES]) as paying:
        payments = paying[Mode.DEDUPES]
        environment = {
            "ORDER_PROVIDER": payments.url,
            "ORDER_CARRIER": str(folder / "carrier.sqlite3"),
            "ORDER_REMIND_AFTER_DAYS": str(REMIND_AFTER / timedelta(days=1)),
        }
        module = "examples.order_saga.app"
        with stage(module, folder, environment, workers=WORKERS, postgres=postgres) as on:
            # Reads its settings from the environment, which is complete by now.
            from examples.order_saga.app import fp

            warehouse.open_shop(fp.database)
            kept = True
            for told in Shop(fp, payments, on.fleet).play():
                tell(told, console)
                kept = kept and told.as_it_should
            sound = on.told(console)
            fp.database.dispose()
    return 0 if kept and sound else EX_BROKEN


def main(
    postgres: Annotated[bool, typer.Option(help="An embedded PostgreSQL, not SQLite.")] = False,
    runs: Annotated[Path, typer.Option(help="Where the run's folder is made.")] = Path("runs"),
) -> None:
    """Play four orders: a good one, a refused charge, a cancelled one, and a killed worker."""
    folder = (runs / time.strftime("order-%Y%m%d-%H%M%S")).resolve()
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
