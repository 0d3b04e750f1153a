"""Commands on servers that are there already: migrate, release, status, verify, sweep."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from coordinator.cli import exits
from coordinator.cli.options import AsJson, Runs

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="An execution's id, or a folder in runs/.")
]


def migrate() -> None:
    """Make or update the tables in $FENCEPOST_DATABASE_URL: the engine's and the ledger's."""
    import ledger
    from coordinator.settings import load_database_url
    from fencepost.stores.sql import migrate as migrate_engine

    url = load_database_url()
    revision = migrate_engine(url)
    ledger.migrate(url)
    typer.echo(f"the tables of the engine (revision {revision}) and the ledger are up to date")


def release(
    file: Annotated[Path, typer.Argument(help="A release.toml.")],
    key: Annotated[
        str | None,
        typer.Option("--key", help="Business key: the same one finds the release that is there."),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            "--deadline",
            min=1.0,
            metavar="SECONDS",
            help="For all its attempts together; then what is not promoted is undone.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow it to its end.")] = True,
    as_json: AsJson = False,
) -> None:
    """Start a release. Exit code 0: promoted; 1: undone, or waiting for a person."""
    from coordinator import readiness, releases
    from coordinator.composition import compose
    from coordinator.narrator import Narrator, console
    from coordinator.settings import load
    from ledger.release_file import load_release

    request = load_release(file)
    settings = load()
    readiness.check_servers(settings)
    factory = compose(settings)
    limit = None if deadline is None else timedelta(seconds=deadline)
    execution_id, created = releases.start(factory, request, key, limit)
    narrator = Narrator(console(to_stderr=as_json))
    before = "" if created else ", started before with this key"
    narrator.detail(f"release {request.name} {request.version}: {execution_id}{before}", style="")
    if not wait:
        if as_json:
            _print({"execution_id": str(execution_id), "created": created})
        return
    try:
        releases.follow(factory, execution_id, narrator)
    except exits.Interrupted:
        narrator.detail(f"it goes on: python -m coordinator status {execution_id}", style="")
        raise
    if not _show(str(execution_id), as_json=as_json):
        raise typer.Exit(exits.FAILED)


def status(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="One release; without it, the newest.")
    ] = None,
    as_json: AsJson = False,
    runs: Runs = Path("runs"),
) -> None:
    """Show the newest releases, or one of them with its attempts, modules and leases."""
    if run is not None:
        _show(run, as_json=as_json, runs=runs)
        return
    from coordinator import readiness
    from coordinator import status as views
    from coordinator.narrator import console
    from coordinator.settings import load_database_url
    from fencepost.stores.sql import SqlExecutionStore, create_engine
    from ledger import database

    url = load_database_url()
    readiness.check_tables(url)
    store = SqlExecutionStore(create_engine(url))
    with database.session(url) as session:
        rows = views.recent(session, store)
    if as_json:
        _print([asdict(row) for row in rows])
    else:
        console().print(views.releases_table(rows) if rows else "no releases yet")


def verify(
    run: RunArgument,
    as_json: AsJson = False,
    settle: Annotated[
        float | None,
        typer.Option(
            "--settle", min=0, help="Seconds for late messages to vanish; by default two leases."
        ),
    ] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Check the nine invariants on a run's stored facts. Exit code 3: one is broken."""
    from coordinator import runs as located
    from coordinator import tables
    from coordinator.narrator import console
    from coordinator.verifier import verify_run

    facts = located.locate(run, runs)
    report = verify_run(facts, settle=2 * facts.lease_ttl if settle is None else settle)
    if as_json:
        _print(report.model_dump(mode="json"))
    else:
        console().print(tables.invariants(report))
    if not report.ok:
        raise typer.Exit(exits.BROKEN)


def sweep(
    hours: Annotated[float, typer.Option(min=0, help="Leave what is younger than this.")] = 1.0,
    remove: Annotated[bool, typer.Option("--remove", help="Remove it, not only list it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find files in the staging and publish folders that no row of the ledger makes visible."""
    from coordinator import readiness
    from coordinator.settings import load_database_url
    from ledger import database
    from ledger.publishing import PublishStore
    from ledger.staging import StagingStore

    url, age = load_database_url(), timedelta(hours=hours)
    readiness.check_tables(url)
    staging, published = StagingStore(), PublishStore()
    with database.session(url) as session:
        if remove:
            found = {
                "staging": staging.sweep(session, older_than=age),
                "published": published.sweep(session, older_than=age),
            }
        else:
            found = {"staging": staging.orphans(session), "published": published.orphans(session)}
    if as_json:
        _print(found)
        return
    for place, paths in found.items():
        for path in paths:
            typer.echo(f"{place}: {path}")
    count = sum(len(paths) for paths in found.values())
    typer.echo(f"{count} {'removed' if remove else 'without a row'}")


def _show(run: str, *, as_json: bool, runs: Path = Path("runs")) -> bool:
    """Show one run; returns whether its release is promoted."""
    from coordinator import runs as located
    from coordinator import status as views
    from coordinator.narrator import Narrator, console
    from fencepost.stores.redis import RedisLeaseStore
    from fencepost.stores.sql import SqlExecutionStore, create_engine
    from ledger import database

    facts = located.locate(run, runs)
    store = SqlExecutionStore(create_engine(facts.database))
    leases = None if facts.leases is None else RedisLeaseStore.from_url(facts.leases)
    with database.session(facts.database) as session:
        view = views.read_run(session, store, leases, facts.run)
    if as_json:
        _print(view.as_json())
        return view.promoted
    narrator = Narrator(console())
    narrator.show(views.run_table(view))
    for reason in views.reasons(view):
        narrator.detail(reason, style="")
    return view.promoted


def _print(data: Any) -> None:
    def text(value: Any) -> str:
        return str(value) if isinstance(value, UUID) else value.isoformat()

    typer.echo(json.dumps(data, indent=2, default=text))
