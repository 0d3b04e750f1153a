"""`fencepost status` and `fencepost events`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

import typer

from fencepost.cli import output, services, standing
from fencepost.records import Checkpoint, Event, Execution, Status
from fencepost.stores.sql import SqlExecutionStore
from fencepost.stores.sql.listing import recent
from fencepost.stores.sql.pruning import EVERYTHING

POLL = 0.5
"""Seconds between two looks at the audit trail while it is followed."""

OVERLAP = 1_000
"""How many event ids a look goes back: ids are given before transactions end, so that an event
may come to light after one with a higher id."""


def list_executions(
    database_url: str | None, status: str | None, saga: str | None, limit: int, *, as_json: bool
) -> None:
    """Print the newest executions."""
    wanted = _status(status)
    with services.opened(database_url) as store:
        executions = recent(store, status=wanted, saga=saga, limit=limit)
    if as_json:
        output.as_json(executions)
        return
    if not executions:
        typer.echo("no executions")
        return
    output.table(
        ("execution", "saga", "status", "chain", "epoch", "created (UTC)", "ended (UTC)", ""),
        [
            (
                str(e.execution_id),
                _named(e),
                output.coloured(e.status),
                str(e.head_seq),
                str(e.epoch),
                output.moment(e.created_at),
                output.moment(e.ended_at),
                _remark(e),
            )
            for e in executions
        ],
    )


def show_execution(database_url: str | None, execution_id: str, *, as_json: bool) -> None:
    """Print one execution and its chain."""
    with services.opened(database_url) as store:
        execution = services.found(store, execution_id)
        chain = store.chain(execution.execution_id)
        run = store.lineage(execution.execution_id)
    if as_json:
        output.as_json({"execution": execution, "chain": chain})
        return
    for name, value in _facts(execution, chain, run):
        typer.echo(f"{name:<10} {value}")
    typer.echo()
    _show_chain(chain)
    for number, command in enumerate(standing.ways_on(execution)):
        typer.echo(f"or:   {command}" if number else f"\nnext: {command}")


def _facts(
    execution: Execution, chain: Sequence[Checkpoint], run: Sequence[Execution]
) -> Iterator[tuple[str, str]]:
    yield "execution", str(execution.execution_id)
    yield "saga", f"{_named(execution)} (version {execution.version})"
    if execution.business_key is not None:
        yield "key", execution.business_key
    yield "status", f"{execution.status}, {execution.phase}"
    yield "epoch", f"{execution.epoch}, {_owner(execution)}"
    if execution.parent_id is not None:
        yield "parent", f"{execution.parent_id} ({execution.parent_step})"
    yield "run", f"{execution.root_id}: {_summary(run)}"
    if execution.status is Status.CONTINUED:
        yield "continued", f"as {execution.result['continued_as']}"
    yield "created", f"{output.moment(execution.created_at)} UTC"
    if execution.ended_at is not None:
        yield "ended", f"{output.moment(execution.ended_at)} UTC"
    if execution.parked_reason is not None:
        yield "parked", execution.parked_reason
    if _message(execution):
        yield "error", f"{_message(execution)} [{execution.error.get('code')}]"
    yield from standing.facts(execution, chain, run)


def _show_chain(chain: Iterable[Checkpoint]) -> None:
    output.table(
        ("#", "kind", "step", "visit", "epoch", "attempt", "owner", "at (UTC)"),
        [
            (
                str(c.seq),
                c.kind,
                c.step,
                str(c.visit),
                str(c.epoch),
                str(c.attempt),
                c.owner,
                output.moment(c.created_at),
            )
            for c in chain
        ],
    )


def show_events(
    database_url: str | None, execution_id: str, *, whole_run: bool, follow: bool, as_json: bool
) -> None:
    """Print audit events as they come."""
    with services.opened(database_url) as store:
        if execution_id == str(EVERYTHING):
            # No execution has this id: under it the prunings are on record.
            trail: Iterable[Event] = store.events([EVERYTHING])
        else:
            execution = services.found(store, execution_id)
            trail = _trail(store, execution.execution_id, whole_run, follow)
        try:
            for event in trail:
                if as_json:
                    output.as_json(event)
                else:
                    typer.echo(_line(event, whole_run))
        except KeyboardInterrupt:
            # 128 + SIGINT, as a shell expects of what was interrupted.
            raise typer.Exit(130) from None


def _trail(
    store: SqlExecutionStore, execution_id: UUID, whole_run: bool, follow: bool
) -> Iterator[Event]:
    seen: set[int | None] = set()
    newest = 0
    while True:
        watched = _watched(store, execution_id, whole_run)
        # Asked before the events are read, so that the last ones are not missed.
        over = all(execution.status.ended for execution in watched)
        ids = [execution.execution_id for execution in watched]
        for event in store.events(ids, after=max(0, newest - OVERLAP)):
            if event.event_id not in seen:
                seen.add(event.event_id)
                newest = max(newest, event.event_id or 0)
                yield event
        if over or not follow:
            return
        time.sleep(POLL)


def _watched(store: SqlExecutionStore, execution_id: UUID, whole_run: bool) -> list[Execution]:
    if whole_run:
        return store.lineage(execution_id)
    return [services.found(store, str(execution_id))]


def _line(event: Event, whole_run: bool) -> str:
    parts = [output.moment(event.at)]
    if whole_run:
        parts.append(str(event.execution_id))
    parts += [f"{event.name:<24}", _epochs(event)]
    told = {
        "owner": event.owner,
        "current owner": event.current_owner,
        "sink": event.sink,
        "key": event.step_key,
        "payload": event.payload_digest,
        **event.details,
    }
    parts += [f"{name}={value}" for name, value in told.items() if value is not None]
    return " ".join(parts)


def _epochs(event: Event) -> str:
    now = "" if event.current_epoch is None else f" (now {event.current_epoch})"
    return f"epoch {event.epoch}{now}"


def _status(name: str | None) -> Status | None:
    if name is None:
        return None
    try:
        return Status(name)
    except ValueError:
        known = ", ".join(Status)
        raise typer.BadParameter(f"{name!r} is none of: {known}", param_hint="--status") from None


def _named(execution: Execution) -> str:
    index = "" if execution.child_index is None else f"[{execution.child_index}]"
    return f"{execution.saga}{index}"


def _owner(execution: Execution) -> str:
    return "nobody's" if execution.owner is None else f"held by {execution.owner}"


def _message(execution: Execution) -> str:
    error = execution.error if isinstance(execution.error, dict) else {}
    return str(error.get("message", ""))


def _remark(execution: Execution) -> str:
    told = execution.parked_reason or _message(execution)
    if not told:
        waits = standing.awaited(execution)
        told = "" if waits is None else f"waits for {waits}"
    paused = execution.paused_at is not None and not execution.status.ended
    return f"paused; {told}".removesuffix("; ") if paused else told


def _summary(run: Sequence[Execution]) -> str:
    counts = Counter(str(execution.status) for execution in run)
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{len(run)} executions, {told}"
