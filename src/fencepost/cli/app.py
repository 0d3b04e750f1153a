"""The commands and their help. What a command needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fencepost.cli import options, people
from fencepost.cli.exits import EPILOG, Commands

app = typer.Typer(
    cls=Commands,
    name="fencepost",
    help="Makes Celery fleets safe to retry.",
    epilog=EPILOG,
    no_args_is_help=True,
    # A traceback with local variables would show passwords.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from fencepost._version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def fencepost(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it")
    ] = False,
) -> None:
    """Makes Celery fleets safe to retry."""


@app.command(epilog=EPILOG)
def migrate(database_url: options.DatabaseUrl = None, json: options.Json = False) -> None:
    """Bring the database's tables to this version. Safe to run again, and at once twice."""
    from fencepost.cli.maintenance import migrate_database

    migrate_database(database_url, as_json=json)


@app.command(epilog=EPILOG)
def check(
    targets: options.Targets,
    *,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the workers that run for their queues, too")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors")] = False,
    sarif: Annotated[
        str | None,
        typer.Option("--sarif", metavar="FILE", help="Write SARIF, for code hosts; - for stdout"),
    ] = None,
    in_flight: Annotated[
        bool,
        typer.Option("--in-flight", help="Look for live executions that the app can't run"),
    ] = False,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Find what is wrong with sagas, tasks and an app's settings, before anything runs."""
    from fencepost.cli.checking import check_targets
    from fencepost.cli.inflight import check_in_flight

    if in_flight:
        if len(targets) != 1 or live or strict or sarif is not None:
            raise typer.BadParameter(
                "it takes one app, and no other option", param_hint="--in-flight"
            )
        check_in_flight(targets[0], database_url, as_json=json)
        return
    check_targets(targets, live=live, strict=strict, sarif_file=sarif, as_json=json)


@app.command(epilog=EPILOG)
def describe(
    targets: options.Targets,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart")] = False,
    json: options.Json = False,
) -> None:
    """Show what sagas and tasks do: steps, types, undos, effects, bounds."""
    from fencepost.cli.describing import describe_targets

    if mermaid and json:
        raise typer.BadParameter("give one of --json and --mermaid")
    describe_targets(targets, mermaid=mermaid, as_json=json)


@app.command(epilog=EPILOG)
def status(
    execution: Annotated[
        str | None, typer.Argument(metavar="EXECUTION", help="One execution, with its chain")
    ] = None,
    *,
    only: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="Only those: active, parked...")
    ] = None,
    saga: Annotated[str | None, typer.Option("--saga", help="Only those of this saga")] = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only those that wait for a person")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The newest")] = 20,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """List executions, newest first; or show one with its checkpoints."""
    from fencepost.cli.showing import list_executions, show_execution
    from fencepost.cli.waiting import list_waiting

    if execution is not None and (only is not None or saga is not None or waiting):
        raise typer.BadParameter("--status, --saga and --waiting are for the list")
    if waiting:
        if only is not None:
            raise typer.BadParameter("--waiting is a choice of its own", param_hint="--status")
        list_waiting(database_url, saga, limit, as_json=json)
    elif execution is None:
        list_executions(database_url, only, saga, limit, as_json=json)
    else:
        show_execution(database_url, execution, as_json=json)


@app.command(epilog=EPILOG)
def events(
    execution: options.ExecutionId,
    run: Annotated[
        bool, typer.Option("--run", help="Of its whole run: parents, children, continuations")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the execution, or run, has ended")
    ] = False,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Show the audit trail. With --json, one object on each line."""
    from fencepost.cli.showing import show_events

    show_events(database_url, execution, whole_run=run, follow=follow, as_json=json)


@app.command(epilog=EPILOG)
def verify(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Any execution of the run")
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Everything in the database instead of one run")
    ] = False,
    settle: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="How long to wait for late duplicates and leases to go away",
        ),
    ] = 0.0,
    database_url: options.DatabaseUrl = None,
    redis_url: options.RedisUrl = None,
    broker_url: options.BrokerUrl = None,
    redis_prefix: options.RedisPrefix = options.PREFIX,
    json: options.Json = False,
) -> None:
    """Check the invariants against what is stored, independently of the engine."""
    from fencepost.cli.verifying import verify_stored

    if (run is None) is not everything:
        raise typer.BadParameter("name a run, or give --all")
    verify_stored(
        database_url, redis_url, broker_url, run, settle, redis_prefix=redis_prefix, as_json=json
    )


@app.command(epilog=EPILOG)
def report(
    execution: Annotated[str, typer.Argument(metavar="RUN", help="Any execution of the run")],
    target: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="By default RUN.html")
    ] = None,
    *,
    database_url: options.DatabaseUrl = None,
    redis_url: options.RedisUrl = None,
    broker_url: options.BrokerUrl = None,
    redis_prefix: options.RedisPrefix = options.PREFIX,
    json: options.Json = False,
) -> None:
    """Write a run as one HTML page: a lane for each worker, takeovers, refused writes, effects."""
    from fencepost.cli.reporting import write_report

    write_report(
        database_url,
        execution,
        target,
        redis_url,
        broker_url,
        redis_prefix=redis_prefix,
        as_json=json,
    )


@app.command(epilog=EPILOG)
def effects(
    execution: Annotated[
        str | None, typer.Argument(metavar="EXECUTION", help="One execution: all of its effects")
    ] = None,
    in_doubt: Annotated[
        bool,
        typer.Option("--in-doubt", help="Of an execution, only those whose outcome is unknown"),
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The oldest")] = 100,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """List the effects that wait for a person; or show one execution's, with their requests."""
    from fencepost.cli.effects import list_in_doubt, show_effects

    if execution is None:
        list_in_doubt(database_url, limit, as_json=json)
    else:
        show_effects(database_url, execution, only_in_doubt=in_doubt, as_json=json)


for command in people.COMMANDS:
    app.command(epilog=EPILOG)(command)
