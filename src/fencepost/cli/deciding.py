"""`fencepost cancel`, `pause`, `resume`, `retry`, `skip`, `resolve EXECUTION` and `fork`."""

from __future__ import annotations

import json
from typing import Any

import typer

from fencepost.cli import output, services
from fencepost.engine.forking import THE_SAME
from fencepost.records import Execution, Status


def cancel(
    database_url: str | None, execution_id: str, by: str | None, why: str, *, as_json: bool
) -> None:
    """Turn an execution back."""
    who = services.who(by, why)
    with services.opened(database_url) as store:
        wanted = services.found(store, execution_id)
        cancelled = services.operations(store).cancel(wanted.execution_id, by=who, why=why)
    _tell(cancelled, f"is cancelled: it undoes its work, {soon(cancelled)}", as_json=as_json)


def pause(
    database_url: str | None, execution_id: str, by: str | None, why: str, *, as_json: bool
) -> None:
    """Pause an execution and its descendants."""
    who = services.who(by, why)
    with services.opened(database_url) as store:
        wanted = services.found(store, execution_id)
        paused = services.operations(store).pause(wanted.execution_id, by=who, why=why)
    told = f"is paused since {output.moment(paused.paused_at)} UTC: nothing more of it is begun"
    _tell(paused, told, as_json=as_json)
    if not as_json:
        typer.echo(f"next: fencepost resume {paused.execution_id} --why '...'")


def resume(
    database_url: str | None, execution_id: str, by: str | None, why: str, *, as_json: bool
) -> None:
    """Lift a pause."""
    who = services.who(by, why)
    with services.opened(database_url) as store:
        wanted = services.found(store, execution_id)
        due = services.operations(store).resume(wanted.execution_id, by=who, why=why)
        resumed = services.found(store, execution_id)
    if as_json:
        output.as_json({"execution": resumed, "due": due})
        return
    soon = "nothing of it is due now"
    if due:
        soon = f"{len(due)} executions of it are taken by workers within about a second"
    typer.echo(f"execution {resumed.execution_id} goes on: {soon}")


def retry(
    database_url: str | None, execution_id: str, by: str | None, why: str, *, as_json: bool
) -> None:
    """Let a parked or failed execution go on."""
    who = services.who(by, why)
    with services.opened(database_url) as store:
        wanted = services.found(store, execution_id)
        execution = services.operations(store).retry(wanted.execution_id, by=who, why=why)
    _tell(execution, f"goes on: {soon(execution)}", as_json=as_json)


def skip(
    database_url: str | None,
    execution_id: str,
    by: str | None,
    why: str,
    application: str | None,
    *,
    as_json: bool,
) -> None:
    """Leave the step at which an execution is parked."""
    who = services.who(by, why)
    with services.opened(database_url) as store:
        wanted = services.found(store, execution_id)
        known = services.operations(store, application)
        execution = known.skip(wanted.execution_id, by=who, why=why)
    told = f"goes on without step {execution.directive['step']!r}: {soon(execution)}"
    _tell(execution, told, as_json=as_json)


def resolve(
    database_url: str | None,
    execution_id: str,
    result: str,
    *,
    by: str | None,
    why: str,
    application: str | None,
    as_json: bool,
) -> None:
    """Give the result of the step at which an execution is parked."""
    who = services.who(by, why)
    value = read(result, "--result")
    with services.opened(database_url) as store:
        wanted = services.found(store, execution_id)
        known = services.operations(store, application)
        execution = known.resolve_step(wanted.execution_id, value, by=who, why=why)
    told = f"goes on with this as step {execution.directive['step']!r}: {soon(execution)}"
    _tell(execution, told, as_json=as_json)


def fork(
    database_url: str | None,
    execution_id: str,
    *,
    at: int | None,
    value: str | None,
    by: str | None,
    why: str,
    application: str | None,
    as_json: bool,
) -> None:
    """Start an execution that begins with a part of another's chain."""
    who = services.who(by, why)
    given = THE_SAME if value is None else read(value, "--input")
    with services.opened(database_url) as store:
        wanted = services.found(store, execution_id)
        known = services.operations(store, application)
        forked = known.fork(wanted.execution_id, at=at, input=given, by=who, why=why)
    if as_json:
        output.as_json(forked)
        return
    what = f"with its first {forked.head_seq} entries" if forked.head_seq else "from the start"
    typer.echo(
        f"execution {forked.execution_id} begins where {wanted.execution_id} was, {what};"
        " a worker takes it within about a second"
    )
    typer.echo("what comes after is done again, its effects too, unless a business key says no")
    typer.echo(f"next: fencepost status {forked.execution_id}")


def read(text: str, option: str) -> Any:
    """A JSON value from the command line."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as problem:
        raise typer.BadParameter(
            f"{text!r} is not JSON ({problem}); a text needs its quotes, as in '\"r_42\"', and"
            " nothing is null",
            param_hint=option,
        ) from None


def soon(execution: Execution) -> str:
    """When somebody takes an execution that was let go on."""
    if execution.paused_at is not None:
        return "once it is resumed"
    match execution.status:
        case Status.QUEUED:
            return "a worker takes it as soon as its parent has a place for it"
        case Status.WAITING:
            return "once its parent comes to it"
        case _:
            return "a worker takes it within about a second"


def _tell(execution: Execution, told: str, *, as_json: bool) -> None:
    if as_json:
        output.as_json(execution)
    else:
        typer.echo(f"execution {execution.execution_id} {told}")
