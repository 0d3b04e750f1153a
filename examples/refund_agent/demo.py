"""`make refund-demo`: one agent, two ways to run it, and every bad moment for a refund.

Starts a Valkey, four payment providers and two fleets of Celery workers, plays each window with
each provider on both apps, and counts in the providers' ledgers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.refund_agent import report
from examples.refund_agent.play import Cell, Player
from examples.refund_agent.processes import providers
from examples.refund_agent.provider import Mode
from examples.refund_agent.shop import Orders
from examples.refund_agent.sides import FencepostSide, PlainSide, Side
from examples.refund_agent.windows import VISIBILITY_TIMEOUT, WINDOWS, Window
from examples.support.fleet import Fleet
from examples.support.waiting import DemoError, abandoned
from fencepost.errors import FencepostError
from fencepost.stores.sql import migrate
from fencepost.testing import embedded_redis
from fencepost.verify import Report, verify

LEASE_TTL = 2.0
WORKERS = 2

EX_FAILED = 1
EX_INTERRUPTED = 130
EX_BROKEN = 3
"""Exit code when Fencepost has refunded twice or lost a refund, or an invariant is broken."""


@dataclass(frozen=True)
class Stage:
    """Everything that runs.

    Attributes:
        players: By side.
        sides: The same, for closing.
    """

    players: dict[str, Player]
    database: str
    broker: str


@contextmanager
def stage(folder: Path, modes: Sequence[Mode], *, live: bool) -> Iterator[Stage]:
    """Start everything, and leave nothing running."""
    with ExitStack() as stack:
        server = stack.enter_context(embedded_redis(folder / "valkey"))
        paying = stack.enter_context(providers(folder / "providers"))
        database = f"sqlite:///{folder / 'fencepost.sqlite3'}"
        migrate(database)
        shared = {
            "REFUND_ORDERS": str(folder / "orders"),
            "REFUND_MODEL_LOG": str(folder / "model"),
            "REFUND_VISIBILITY_TIMEOUT": str(VISIBILITY_TIMEOUT),
            "FENCEPOST_DATABASE_URL": database,
            "FENCEPOST_LEASE_TTL": str(LEASE_TTL),
            **{f"REFUND_PROVIDER_{mode.upper()}": paying[mode].url for mode in paying},
            **({"REFUND_MODEL": "live"} if live else {}),
        }
        os.environ.update(shared)
        brokers = {"plain": server.url_of(0), "fencepost": server.url_of(1)}
        fleets = {
            name: Fleet(
                f"examples.refund_agent.{name}_app",
                {"REFUND_BROKER": brokers[name]},
                folder / name,
                concurrency=len(Mode),
            )
            for name in brokers
        }
        for fleet in fleets.values():
            stack.callback(fleet.stop)
            fleet.start(WORKERS)
        os.environ["REFUND_BROKER"] = brokers["fencepost"]
        sides: list[Side] = [
            PlainSide(brokers["plain"], fleets["plain"]),
            FencepostSide(brokers["fencepost"], fleets["fencepost"]),
        ]
        for side in sides:
            stack.callback(side.close)
        orders, log = Orders(folder / "orders"), folder / "model"
        chosen = {mode: paying[mode] for mode in modes}
        players = {side.name: Player(side, chosen, orders, log) for side in sides}
        for fleet in fleets.values():
            fleet.wait_until_ready()
        yield Stage(players, database, brokers["fencepost"])


def play(on: Stage, windows: Sequence[Window], console: Console) -> list[Cell]:
    """Play the windows one after the other, each on both apps at once."""
    cells: list[Cell] = []
    with ThreadPoolExecutor(len(on.players)) as threads:
        for window in windows:
            began = time.monotonic()
            jobs = [threads.submit(player.play, window) for player in on.players.values()]
            try:
                found = [cell for job in jobs for cell in job.result()]
            except BaseException:
                abandoned.set()
                raise
            cells += found
            counts = {
                name: " ".join(str(c.times) for c in found if c.side == name) for name in on.players
            }
            console.print(
                f"  {window.title:40} plain {counts['plain']}   Fencepost {counts['fencepost']}"
                f"   [dim]{time.monotonic() - began:.0f} s[/dim]"
            )
    return cells


def settle(on: Stage, windows: Sequence[Window], cells: Sequence[Cell], console: Console) -> None:
    """Let a person decide about what is parked."""
    parked = [cell for cell in cells if cell.state == "parked"]
    if not parked:
        return
    for window in windows:
        on.players["fencepost"].settle(window, [c for c in parked if c.window == window.name])
    counts = " ".join(str(len(cell.settled or [])) for cell in parked)
    console.print(
        f"\nA person looks the {len(parked)} parked refunds up in the provider's statement and"
        " decides\n(`fencepost effects`, `fencepost resolve`): they go on, and their customers were"
        f" refunded {counts} times."
    )


def verified(on: Stage, console: Console) -> Report:
    """Check the invariants against what is stored."""
    found = verify(on.database, on.broker, on.broker, settle=timedelta(seconds=10))
    console.print(
        f"\nVerifier: {sum(found.executions.values())} executions,"
        f" {'no invariant broken' if found.ok else f'broken: {found.violated}'}."
    )
    for violation in found.violations:
        console.print(f"  {violation}", style="red")
    return found


def conclude(cells: Sequence[Cell], console: Console) -> bool:
    """Print the totals; returns whether Fencepost has kept its word."""
    totals = report.summary(cells)
    plain, ours = totals["plain"], totals["fencepost"]
    console.print(
        f"Plain Celery refunded {plain['refunded_twice']} of {plain['cases']} customers twice,"
        f" left {plain['failed']} in the dark and told {plain['misinformed']} the wrong sum;"
        f" Fencepost refunded {ours['refunded_twice']} twice and parked {ours['parked']}."
    )
    if ours["model_calls"]:  # a live model's are not counted here
        calls = f"{plain['model_calls']} by plain Celery, {ours['model_calls']} by Fencepost"
        console.print(f"Model calls: {calls}.")
    broken = [cell for cell in cells if cell.side == "fencepost" and not cell.kept_its_word]
    for cell in broken:
        console.print(f"Fencepost broke its word: {cell}", style="bold red")
    return not broken


def run(
    folder: Path, windows: Sequence[Window], modes: Sequence[Mode], console: Console, *, live: bool
) -> int:
    """Play it all; returns the exit code."""
    began = time.monotonic()
    console.print("Starting a Valkey, four payment providers and two fleets of Celery workers.")
    with stage(folder, modes, live=live) as on:
        console.print(f"[dim]{time.monotonic() - began:.0f} s; logs are in {folder}[/dim]\n")
        console.print(f"  {'times refunded, by provider:':40} {' · '.join(modes)}")
        cells = play(on, windows, console)
        console.print()
        console.print(report.table(windows, modes, cells))
        report.print_legend(console, cells)
        settle(on, windows, cells, console)
        invariants = verified(on, console)
    kept = conclude(cells, console)
    seconds = round(time.monotonic() - began, 1)
    path = folder / "report.json"
    report.write(path, cells, seconds=seconds, verifier=invariants.model_dump(mode="json"))
    console.print(f"[dim]{seconds:.0f} s; report: {path}[/dim]")
    return 0 if kept and invariants.ok else EX_BROKEN


def main(
    window: Annotated[
        list[str] | None, typer.Option(help="Only this one; may be repeated.")
    ] = None,
    mode: Annotated[list[Mode] | None, typer.Option(help="Only this provider; likewise.")] = None,
    live: Annotated[
        bool, typer.Option(help="A real model; see model.py for its settings.")
    ] = False,
    runs: Annotated[Path, typer.Option(help="Where the run's folder is made.")] = Path("runs"),
) -> None:
    """Refund customers through every crash window, with plain Celery and with Fencepost."""
    known = {one.name: one for one in WINDOWS}
    unknown = set(window or ()) - set(known)
    if unknown:
        raise typer.BadParameter(f"no window {', '.join(unknown)}; there are: {', '.join(known)}")
    if live and not os.environ.get("OPENAI_API_KEY"):
        raise typer.BadParameter("--live needs OPENAI_API_KEY")
    windows = [known[name] for name in window] if window else list(WINDOWS)
    folder = (runs / time.strftime("refund-%Y%m%d-%H%M%S")).resolve()
    folder.mkdir(parents=True)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    try:
        code = run(folder, windows, list(mode or Mode), console, live=live)
    except (DemoError, FencepostError) as problem:
        console.print(f"The demonstration failed: {problem}\nLogs are in {folder}.", style="red")
        code = EX_FAILED
    except KeyboardInterrupt:
        console.print(f"Stopped; nothing is left running. Logs are in {folder}.")
        code = EX_INTERRUPTED
    raise typer.Exit(code)


if __name__ == "__main__":
    typer.run(main)
