"""Options that several commands share. Each falls back to an environment variable."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.exits import JSON_WANTED


def _remember(ctx: typer.Context, wanted: bool) -> bool:
    # An error is told as JSON too, wherever it comes from.
    ctx.meta[JSON_WANTED] = wanted
    return wanted


DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="FENCEPOST_DATABASE_URL",
        metavar="URL",
        show_default=False,
        help="SQLAlchemy URL of the truth: postgresql://... or sqlite:///file.db",
    ),
]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        envvar="FENCEPOST_REDIS_URL",
        metavar="URL",
        show_default=False,
        help="Where the leases are; by default the broker, if that is Redis",
    ),
]
BrokerUrl = Annotated[
    str | None,
    typer.Option(
        "--broker-url",
        envvar="FENCEPOST_BROKER_URL",
        metavar="URL",
        show_default=False,
        help="Celery's broker",
    ),
]
RedisPrefix = Annotated[
    str,
    typer.Option(
        "--redis-prefix", envvar="FENCEPOST_REDIS_PREFIX", help="What stands before every key"
    ),
]
Json = Annotated[
    bool, typer.Option("--json", callback=_remember, is_eager=True, help="For machines")
]
Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET...",
        show_default=False,
        help="A module, or module:attribute: a saga, a durable task, a Celery app",
    ),
]
ExecutionId = Annotated[str, typer.Argument(metavar="EXECUTION", help="An execution's id")]
Why = Annotated[str, typer.Option("--why", help="For the audit trail")]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", show_default=False, help="Who; by default you"),
]
App = Annotated[
    str | None,
    typer.Option(
        "--app",
        "-A",
        metavar="APP",
        show_default=False,
        help="Where your app is, to hold values to their types",
    ),
]
ApprovalName = Annotated[str, typer.Argument(metavar="NAME", help="The approval's name")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done")]

PREFIX = "fencepost:"
