"""`fencepost migrate` and `fencepost retry`."""

from __future__ import annotations

import typer

from fencepost.cli import output, services
from fencepost.records import Status
from fencepost.stores.sql import create_engine, migrate


def migrate_database(database_url: str | None, *, as_json: bool) -> None:
    """Bring the schema to this version."""
    engine = create_engine(services.needed(database_url), pool_size=1)
    try:
        revision = migrate(engine)
    finally:
        engine.dispose()
    where = engine.url.render_as_string(hide_password=True)
    if as_json:
        output.as_json({"database": where, "revision": revision})
    else:
        typer.echo(f"{where} is at revision {revision}")


def retry_execution(
    database_url: str | None, execution_id: str, why: str, *, as_json: bool
) -> None:
    """Unpark an execution. No message is sent: the workers' reapers find it."""
    if not why.strip():
        raise typer.BadParameter("say why: it is kept in the audit trail", param_hint="--why")
    with services.opened(database_url) as store:
        parked = services.found(store, execution_id)
        execution = store.unpark(parked.execution_id, why)
    if as_json:
        output.as_json(execution)
        return
    soon = (
        "as soon as its parent has a place for it"
        if execution.status is Status.QUEUED
        else "within about a second"
    )
    typer.echo(f"execution {execution.execution_id} goes on: a worker takes it {soon}")
