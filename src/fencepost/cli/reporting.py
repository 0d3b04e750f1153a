"""`fencepost report`: a run as one HTML page."""

from __future__ import annotations

from pathlib import Path

import typer

from fencepost.cli import output, services
from fencepost.report import Section, read, render
from fencepost.stores.sql import SqlEffectStore
from fencepost.verify import verify


def write_report(
    database_url: str | None,
    execution_id: str,
    target: Path | None,
    redis_url: str | None,
    broker_url: str | None,
    *,
    redis_prefix: str,
    as_json: bool,
) -> None:
    """Write the page; exit code 0 whatever the verifier says, which is part of it."""
    with services.opened(database_url) as store:
        execution = services.found(store, execution_id)
        timeline = read(store, SqlEffectStore(store), execution.execution_id)
    verdict = verify(
        services.needed(database_url),
        redis_url,
        broker_url,
        run=execution.execution_id,
        redis_prefix=redis_prefix,
    )
    invariants = Section(
        "The invariants, from stored facts",
        ("", "invariant", "verdict"),
        [
            (line.verdict.value != "violated", line.title, line.verdict)
            for line in verdict.invariants
        ],
    )
    page = render(
        f"{execution.saga}: {execution.status}",
        timeline,
        summary=[f"Run of execution {execution.execution_id}; it took {timeline.length:.3f} s."],
        sections=[invariants],
    )
    path = target or Path(f"{execution.execution_id}.html")
    path.write_text(page, "utf-8")
    if as_json:
        output.as_json({"report": str(path.resolve()), "ok": verdict.ok})
    else:
        typer.echo(f"{path}: {len(timeline.lanes)} workers, {len(timeline.marks)} entries")
