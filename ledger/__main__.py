"""`python -m ledger migrate | check | sweep`: looking after the ledger and its two stores."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated

import typer

import ledger
from fencepost import FencepostError
from ledger import database
from ledger.publishing import PublishStore
from ledger.settings import FactorySettings
from ledger.staging import StagingStore

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@app.command()
def migrate() -> None:
    """Bring the ledger's tables in $FENCEPOST_DATABASE_URL to this version's schema."""
    ledger.migrate(FactorySettings().database_url)
    typer.echo("the ledger's tables are up to date")


@app.command()
def check() -> None:
    """Fail if the ledger's tables are of another version."""
    ledger.check(FactorySettings().database_url)
    typer.echo("the ledger's tables are as this version needs them")


@app.command()
def sweep(
    hours: Annotated[float, typer.Option(min=0, help="Leave what is younger than this.")] = 1.0,
    remove: Annotated[bool, typer.Option(help="Remove it; otherwise only list it.")] = False,
) -> None:
    """Find files that no row of the ledger makes visible, left by workers that died."""
    age = timedelta(hours=hours)
    staging, published = StagingStore(), PublishStore()
    with database.session() as session:
        if remove:
            found = [f"staging: {path}" for path in staging.sweep(session, older_than=age)]
            found += [f"publish: {path}" for path in published.sweep(session, older_than=age)]
        else:
            found = [f"staging: {path}" for path in staging.orphans(session)]
            found += [f"publish: {path}" for path in published.orphans(session)]
    for line in found:
        typer.echo(line)
    typer.echo(f"{len(found)} {'removed' if remove else 'without a row'}")


def main() -> int:
    """Run a command; a known error is one line and exit code 1."""
    try:
        app()
    except FencepostError as problem:
        typer.echo(f"{problem.code}: {problem}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
