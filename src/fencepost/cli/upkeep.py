"""`fencepost prune` and `fencepost repin`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import timedelta

import typer

from fencepost.cli import output, services
from fencepost.cli.exits import Exit
from fencepost.engine.repinning import Left, Repinned, repin, target
from fencepost.records import Status
from fencepost.stores.sql.inflight import SqlRepins
from fencepost.stores.sql.pruning import PRUNABLE, Pruned, prune

SHOWN = 20
"""Executions that are left as they are, of which the reason is printed; `--json` has all."""

EVERY = 2.0
"""Seconds between two lines that tell how far it has come."""

UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


class Ticker:
    """Tells on stderr how far something has come that may take long.

    Args:
        silent: Say nothing.
    """

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._last = time.monotonic()

    def tell(self, done: str) -> None:
        """Say it, unless something was said a moment ago."""
        now = time.monotonic()
        if not self._silent and now - self._last >= EVERY:
            self._last = now
            typer.echo(f"... {done}", err=True)


def prune_runs(
    database_url: str | None,
    older_than: str,
    only: Sequence[str],
    by: str | None,
    why: str,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete runs that have ended long ago."""
    who = services.who(by, why)
    age = _age(older_than)
    statuses = _ends(only)
    ticker = Ticker(silent=as_json)
    with services.opened(database_url) as store:
        pruned = prune(
            store,
            age,
            statuses=statuses,
            by=who,
            why=why,
            dry_run=dry_run,
            progress=lambda done: ticker.tell(f"{done.runs} runs"),
        )
    if as_json:
        output.as_json(pruned)
    else:
        _tell_pruned(pruned)


def _tell_pruned(pruned: Pruned) -> None:
    verb = "would be deleted" if pruned.dry_run else "are deleted"
    typer.echo(
        f"{pruned.runs} runs that had ended before {output.moment(pruned.before)} UTC {verb}"
    )
    if pruned.runs:
        rows = ", ".join(f"{n} {name}" for name, n in pruned.counts.items() if name != "runs")
        typer.echo(f"rows: {rows}")


def _age(text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,6})([dhms])", text.strip())
    if found is None:
        raise typer.BadParameter(
            f"{text!r} is no age: a number and d, h, m or s, as in 90d", param_hint="--older-than"
        )
    return timedelta(**{UNITS[found[2]]: int(found[1])})


def _ends(names: Sequence[str]) -> frozenset[Status]:
    known = {str(status): status for status in PRUNABLE}
    for name in names:
        if name not in known:
            raise typer.BadParameter(
                f"{name!r} is none of: {', '.join(sorted(known))}", param_hint="--status"
            )
    return frozenset(known[name] for name in names) or PRUNABLE


def repin_executions(
    database_url: str | None,
    application: str,
    saga: str,
    *,
    to: str | None,
    from_version: str | None,
    by: str | None,
    why: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Move what fits to another version; exit with 1 if anything is left."""
    from fencepost.cli.targets import load

    who = services.who(by, why)
    fencepost = load(application)
    definition = target(fencepost.registry, saga, to)
    ticker = Ticker(silent=as_json)
    outcomes = []
    with services.opened(database_url or services.database_of(fencepost)) as store:
        for outcome in repin(
            SqlRepins(store),
            definition,
            from_version=from_version,
            by=who,
            why=why,
            dry_run=dry_run,
        ):
            outcomes.append(outcome)
            ticker.tell(f"{len(outcomes)} executions")
    left = tuple(one for one in outcomes if isinstance(one, Left))
    moved = tuple(one.execution.execution_id for one in outcomes if not isinstance(one, Left))
    done = Repinned(saga, definition.version, dry_run, moved, left)
    if as_json:
        output.as_json(done)
    else:
        _tell_repinned(done)
    if left:
        raise typer.Exit(Exit.FOUND)


def _tell_repinned(done: Repinned) -> None:
    verb = "can go on" if done.dry_run else "go on"
    soon = "" if done.dry_run or not done.moved else ", within about a second"
    typer.echo(f"{len(done.moved)} executions of {done.saga} {verb} in version {done.to}{soon}")
    if not done.left:
        return
    typer.echo(f"{len(done.left)} stay in theirs:")
    for left in done.left[:SHOWN]:
        typer.echo(f"  {left.execution_id} ({left.status}, {left.version}): {left.reason}")
    if len(done.left) > SHOWN:
        typer.echo(f"  ... and {len(done.left) - SHOWN} more (--json)")
    typer.echo("keep their definitions registered beside the new one until they have ended")
