"""The commands with which people decide about executions. What one needs is imported when it runs.

None of them sends a message: they write to the database, and the workers' reapers find it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli import options


def cancel(
    execution: options.ExecutionId,
    *,
    why: options.Why,
    by: options.By = None,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Have an execution undo its work and end; and its children. Whoever runs it is fenced."""
    from fencepost.cli import deciding

    deciding.cancel(database_url, execution, by, why, as_json=json)


def pause(
    execution: options.ExecutionId,
    *,
    why: options.Why,
    by: options.By = None,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Have nothing more of an execution and its children begun. A step that runs runs on."""
    from fencepost.cli import deciding

    deciding.pause(database_url, execution, by, why, as_json=json)


def resume(
    execution: options.ExecutionId,
    *,
    why: options.Why,
    by: options.By = None,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Lift a pause."""
    from fencepost.cli import deciding

    deciding.resume(database_url, execution, by, why, as_json=json)


def retry(
    execution: options.ExecutionId,
    *,
    why: options.Why,
    by: options.By = None,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Let a parked execution go on, attempts from zero; or one that failed with nothing undone."""
    from fencepost.cli import deciding

    deciding.retry(database_url, execution, by, why, as_json=json)


def skip(
    execution: options.ExecutionId,
    *,
    why: options.Why,
    by: options.By = None,
    application: options.App = None,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Leave the step at which an execution is parked: it counts as failed, or as undone."""
    from fencepost.cli import deciding

    deciding.skip(database_url, execution, by, why, application, as_json=json)


def resolve(
    what: Annotated[
        str, typer.Argument(metavar="EXECUTION|SINK", help="A parked execution; or a sink")
    ],
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="The key of an effect in doubt there")
    ] = None,
    *,
    why: options.Why,
    result: Annotated[
        str | None,
        typer.Option("--result", metavar="JSON", help="Of the step: it was done by hand"),
    ] = None,
    landed: Annotated[
        str | None,
        typer.Option(
            "--landed", metavar="JSON", help="The effect is there; what the sink answered"
        ),
    ] = None,
    not_landed: Annotated[
        bool,
        typer.Option("--not-landed", help="It is not there, and no late call will bring it"),
    ] = False,
    by: options.By = None,
    application: options.App = None,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Give the result of the step at which an execution is parked; or decide about an effect."""
    if key is None:
        if landed is not None or not_landed:
            raise typer.BadParameter("an effect has a sink and a key", param_hint="KEY")
        if result is None:
            raise typer.BadParameter("give the step's result, as JSON", param_hint="--result")
        from fencepost.cli import deciding

        deciding.resolve(
            database_url,
            what,
            result,
            by=by,
            why=why,
            application=application,
            as_json=json,
        )
        return
    if result is not None:
        raise typer.BadParameter(
            "--result is for the step of an execution; for an effect: --landed",
            param_hint="--result",
        )
    from fencepost.cli.effects import resolve_effect

    resolve_effect(
        database_url,
        what,
        key,
        landed=landed,
        not_landed=not_landed,
        why=why,
        by=by,
        application=application,
        as_json=json,
    )


def signal(
    execution: options.ExecutionId,
    name: Annotated[str, typer.Argument(metavar="SIGNAL", help="What the wait names it by")],
    *,
    payload: Annotated[str, typer.Option("--payload", metavar="JSON", help="Of it")] = "null",
    key: Annotated[
        str | None, typer.Option("--key", help="A second one with this key is not stored")
    ] = None,
    by: options.By = None,
    application: options.App = None,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Send a signal to an execution; it is kept until a wait takes it."""
    from fencepost.cli import signalling

    signalling.send(
        database_url,
        execution,
        name,
        payload,
        key=key,
        by=by,
        application=application,
        as_json=json,
    )


def approve(
    execution: options.ExecutionId,
    name: options.ApprovalName,
    *,
    why: options.Why,
    by: options.By = None,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Say yes to what an execution waits for."""
    from fencepost.cli import signalling

    signalling.answer(database_url, execution, name, by, why, approved=True, as_json=json)


def reject(
    execution: options.ExecutionId,
    name: options.ApprovalName,
    *,
    why: options.Why,
    by: options.By = None,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Say no to what an execution waits for: it fails there, and undoes its work."""
    from fencepost.cli import signalling

    signalling.answer(database_url, execution, name, by, why, approved=False, as_json=json)


def fork(
    execution: options.ExecutionId,
    *,
    why: options.Why,
    at: Annotated[
        int | None,
        typer.Option("--at", min=0, metavar="N", help="The last entry that comes along; 0: none"),
    ] = None,
    value: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="Instead of its input")
    ] = None,
    by: options.By = None,
    application: options.App = None,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Start an execution that begins with what another one has done; the rest is done again."""
    from fencepost.cli import deciding

    deciding.fork(
        database_url,
        execution,
        at=at,
        value=value,
        by=by,
        why=why,
        application=application,
        as_json=json,
    )


def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Since its end: 90d, 12h, 30m")
    ],
    *,
    why: options.Why,
    only: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="STATUS", help="Only runs that ended so; repeatable"),
    ] = None,
    dry_run: options.DryRun = False,
    by: options.By = None,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Delete runs that ended long ago, with all that is known of them. Their keys are free then."""
    from fencepost.cli import upkeep

    upkeep.prune_runs(database_url, older_than, only or [], by, why, dry_run=dry_run, as_json=json)


def repin(
    application: Annotated[
        str, typer.Argument(metavar="APP", help="Where your app is, as in shop.tasks:app")
    ],
    saga: Annotated[str, typer.Argument(metavar="SAGA", help="The saga's name")],
    *,
    why: options.Why,
    to: Annotated[
        str | None, typer.Option("--to", metavar="VERSION", help="Where several are registered")
    ] = None,
    from_version: Annotated[
        str | None, typer.Option("--from", metavar="VERSION", help="Only those of this version")
    ] = None,
    dry_run: options.DryRun = False,
    by: options.By = None,
    database_url: options.DatabaseUrl = None,
    json: options.Json = False,
) -> None:
    """Move live executions to another version of their saga, where they fit it."""
    from fencepost.cli import upkeep

    upkeep.repin_executions(
        database_url,
        application,
        saga,
        to=to,
        from_version=from_version,
        by=by,
        why=why,
        dry_run=dry_run,
        as_json=json,
    )


COMMANDS = (
    cancel,
    pause,
    resume,
    retry,
    skip,
    resolve,
    signal,
    approve,
    reject,
    fork,
    prune,
    repin,
)
