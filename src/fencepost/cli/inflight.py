"""`fencepost check --in-flight`: live executions whose version an app doesn't know."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import typer

from fencepost.cli import output, services
from fencepost.cli.exits import Exit
from fencepost.cli.targets import load
from fencepost.stores.sql.inflight import InFlight, in_flight


def check_in_flight(application: str, database_url: str | None, *, as_json: bool) -> None:
    """Print what is in flight; exit with 1 if the app doesn't know one of the versions."""
    fencepost = load(application)
    known = {(saga.name, saga.version) for saga in fencepost.registry}
    with services.opened(database_url or services.database_of(fencepost)) as store:
        live = in_flight(store, known)
    unknown = [one for one in live if not one.known]
    if as_json:
        output.as_json({"ok": not unknown, "in_flight": live})
    else:
        _show(application, live, unknown)
    if unknown:
        raise typer.Exit(Exit.FOUND)


def _show(application: str, live: Sequence[InFlight], unknown: Sequence[InFlight]) -> None:
    if not live:
        typer.echo("nothing is in flight")
        return
    output.table(
        ("saga", "version", "in flight", "oldest (UTC)", "registered"),
        [
            (
                one.saga,
                one.version,
                ", ".join(f"{number} {status}" for status, number in sorted(one.counts.items())),
                output.moment(one.oldest),
                "yes" if one.known else "NO",
            )
            for one in live
        ],
    )
    for one in unknown:
        age = output.age(datetime.now(UTC) - one.oldest)
        typer.echo(
            f"\n{one.total} executions of {one.saga} {one.version} are in flight, the oldest for"
            f" {age}, and no worker of this app can run them:"
        )
        typer.echo("  keep that definition registered beside the new one until they have ended,")
        typer.echo(f"  or: fencepost repin {application} {one.saga} --dry-run --why '...'")
