"""`fencepost status --waiting`: what waits for a person."""

from __future__ import annotations

import typer

from fencepost.cli import output, services
from fencepost.cli.standing import awaited, ways_on
from fencepost.stores.sql.listing import waiting_for_people


def list_waiting(database_url: str | None, saga: str | None, limit: int, *, as_json: bool) -> None:
    """Print what is parked, and whose approval is asked for; who has waited longest first."""
    with services.opened(database_url) as store:
        executions = waiting_for_people(store, saga=saga, limit=limit)
    if as_json:
        output.as_json(executions)
        return
    if not executions:
        typer.echo("nothing waits for a person")
        return
    output.table(
        ("execution", "saga", "status", "created (UTC)", "waits for"),
        [
            (
                str(execution.execution_id),
                execution.saga,
                output.coloured(execution.status),
                output.moment(execution.created_at),
                execution.parked_reason or awaited(execution) or "",
            )
            for execution in executions
        ],
    )
    typer.echo(f"\nnext: {ways_on(executions[0])[0]}")
