"""`fencepost effects` and `fencepost resolve SINK KEY`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from fencepost.cli import output, services
from fencepost.cli.deciding import read
from fencepost.effects.model import UNKNOWN_OUTCOME, EffectRecord
from fencepost.engine.decisions import Decision, decide_effect
from fencepost.records import Execution, Status
from fencepost.stores.sql import SqlEffectStore

if TYPE_CHECKING:
    from fencepost.effects import Effect

REQUEST_WIDTH = 60
"""Characters of a request that the table shows; one execution's effects are shown in full."""


def list_in_doubt(database_url: str | None, limit: int, *, as_json: bool) -> None:
    """Print what waits for a person, oldest first."""
    with services.opened(database_url) as store:
        effects = SqlEffectStore(store).in_doubt(limit)
    if as_json:
        output.as_json(effects)
        return
    if not effects:
        typer.echo("no effect waits for a person")
        return
    _show_table(effects)
    first = effects[0]
    typer.echo(f"\nnext: fencepost effects {first.execution_id}")


def show_effects(
    database_url: str | None, execution_id: str, *, only_in_doubt: bool, as_json: bool
) -> None:
    """Print the effects of one execution, oldest first, with all that is known of them."""
    with services.opened(database_url) as store:
        execution = services.found(store, execution_id)
        effects = SqlEffectStore(store).of_execution(execution.execution_id)
    if only_in_doubt:
        effects = [effect for effect in effects if effect.status in UNKNOWN_OUTCOME]
    if as_json:
        output.as_json(effects)
        return
    if not effects:
        typer.echo(
            f"execution {execution.execution_id} has no effects" + " in doubt" * only_in_doubt
        )
        return
    for effect in effects:
        for name, value in _facts(effect, execution):
            typer.echo(f"{name:<9} {value}")
        typer.echo()


def resolve_effect(
    database_url: str | None,
    sink: str,
    key: str,
    *,
    landed: str | None,
    not_landed: bool,
    why: str,
    by: str | None,
    application: str | None,
    as_json: bool,
) -> None:
    """Record a decision; no message is sent, the workers' reapers find the execution."""
    if (landed is not None) is not_landed:
        raise typer.BadParameter("give --landed RESULT or --not-landed", param_hint="--landed")
    result = read(landed, "--landed") if landed is not None else None
    who = services.who(by, why)
    declared = _declared(application)
    with services.opened(database_url) as store:
        effects = SqlEffectStore(store)
        recorded = effects.find(sink, key)
        decision = decide_effect(
            store,
            effects,
            sink,
            key,
            landed=not not_landed,
            result=result,
            by=who,
            why=why,
            declared=declared.get(recorded.effect) if recorded is not None else None,
        )
    if as_json:
        output.as_json(decision)
    else:
        _tell(decision)


def _declared(application: str | None) -> dict[str, Effect[Any, Any]]:
    if application is None:
        return {}
    from fencepost.cli.targets import load

    return {e.name: e for saga in load(application).registry for e in saga.effects}


def _tell(decision: Decision) -> None:
    effect, execution = decision.effect, decision.execution
    typer.echo(f"effect {effect.key} at {effect.sink} is {effect.status}")
    if decision.left:
        typer.echo(f"execution {execution.execution_id} stays parked: also in doubt is")
        for other in decision.left:
            typer.echo(f"  {other.key} at {other.sink}")
        typer.echo(f"next: fencepost effects {execution.execution_id} --in-doubt")
    elif execution.status is Status.QUEUED:
        typer.echo(f"execution {execution.execution_id} goes on when its parent has a place for it")
    else:
        typer.echo(f"execution {execution.execution_id} goes on within about a second")


def _show_table(effects: Iterable[EffectRecord]) -> None:
    output.table(
        ("age", "sink", "key", "effect", "status", "calls", "request", "execution"),
        [
            (
                output.age(effect.since_last_call),
                effect.sink,
                effect.key,
                f"{effect.effect} ({effect.kind})",
                effect.status,
                str(effect.calls),
                _request(effect.request, REQUEST_WIDTH),
                str(effect.execution_id),
            )
            for effect in effects
        ],
    )


def _facts(effect: EffectRecord, execution: Execution) -> Iterator[tuple[str, str]]:
    yield "key", effect.key
    yield "sink", effect.sink
    yield "effect", f"{effect.effect}, {effect.kind}"
    yield "status", str(effect.status)
    called = f"{effect.calls}, the last {output.age(effect.since_last_call)} ago"
    yield "calls", f"{called}, by {effect.owner} in epoch {effect.epoch}"
    yield "step", effect.step_key
    if effect.resource != str(effect.execution_id):
        yield "resource", effect.resource
    yield "request", _request(effect.request)
    if effect.result is not None:
        yield "result", _request(effect.result)
    if isinstance(effect.error, dict):
        yield "error", f"{effect.error.get('message')} [{effect.error.get('code')}]"
    if effect.resolution is not None:
        yield "decided", f"by {effect.resolution['by']}: {effect.resolution['why']}"
    if effect.status in UNKNOWN_OUTCOME and execution.status is Status.PARKED:
        names = f"{quote(effect.sink)} {quote(effect.key)}"
        yield "next", f"fencepost resolve {names} --landed '...' --why '...'"
        yield "or", f"fencepost resolve {names} --not-landed --why '...'"


def _request(value: Any, width: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if width is None or len(text) <= width:
        return text
    return f"{text[: width - 1]}… ({len(text)} characters)"
