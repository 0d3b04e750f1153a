"""`fencepost signal`, `approve` and `reject`."""

from __future__ import annotations

import typer

from fencepost.cli import output, services
from fencepost.cli.deciding import read
from fencepost.cli.standing import awaited
from fencepost.engine.operations import Sent
from fencepost.saga.signals import APPROVAL


def send(
    database_url: str | None,
    execution_id: str,
    name: str,
    payload: str,
    *,
    key: str | None,
    by: str | None,
    application: str | None,
    as_json: bool,
) -> None:
    """Store a signal for an execution."""
    sender = services.login() if by is None else by
    value = read(payload, "--payload")
    with services.opened(database_url) as store:
        wanted = services.found(store, execution_id)
        known = services.operations(store, application)
        sent = known.signal(wanted.execution_id, name, value, key=key, by=sender)
    if as_json:
        output.as_json({"signal": sent.signal, "created": sent.created})
        return
    if not sent.created:
        at = output.moment(sent.signal.sent_at)
        typer.echo(f"signal {name} with key {key} was sent before, at {at} UTC: nothing is stored")
    else:
        _tell(sent, f"signal {name} is sent")


def answer(
    database_url: str | None,
    execution_id: str,
    name: str,
    by: str | None,
    why: str,
    *,
    approved: bool,
    as_json: bool,
) -> None:
    """Answer an approval."""
    who = services.who(by, why)
    with services.opened(database_url) as store:
        wanted = services.found(store, execution_id)
        known = services.operations(store)
        say = known.approve if approved else known.reject
        sent = say(wanted.execution_id, name, by=who, why=why)
    if as_json:
        output.as_json({"signal": sent.signal, "created": sent.created})
        return
    verb = "approved" if approved else "rejected"
    if not sent.created:
        typer.echo(f"{name} was {verb} before, by {sent.signal.payload['by']}")
    else:
        _tell(sent, f"{name} is {verb}")


def _tell(sent: Sent, done: str) -> None:
    execution = sent.execution
    if sent.wanted_now:
        later = ", once it is resumed" if execution.paused_at else " within about a second"
        typer.echo(f"{done}: execution {execution.execution_id} goes on{later}")
        return
    name = sent.signal.name.removeprefix(APPROVAL)
    waits = awaited(execution)
    now = f"it waits for {waits}" if waits else f"it is {execution.status}"
    typer.echo(
        f"{done}, and kept: execution {execution.execution_id} doesn't wait for {name} now ({now})"
    )
