"""`fencepost migrate`."""

from __future__ import annotations

import typer

from fencepost.cli import output, services
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
