"""`fencepost check`: what can be known before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import typer

from fencepost.celery import check_queues, declared_queues, served_queues, usual_queue
from fencepost.cli import output, sarif
from fencepost.cli.exits import Exit
from fencepost.cli.targets import Target, find
from fencepost.findings import Finding, Severity, errors_in
from fencepost.saga.checks import check

STDOUT = "-"


def check_targets(
    arguments: Sequence[str],
    *,
    live: bool,
    strict: bool,
    sarif_file: str | None,
    as_json: bool,
) -> None:
    """Print all findings; exit with 1 if one of them is an error.

    Args:
        arguments: `module`, or `module:attribute`.
        live: Ask the workers that run, too.
        strict: Warnings count as errors.
        sarif_file: Where SARIF is written; `-` for stdout, and nothing else then.
        as_json: For machines.
    """
    targets = [find(argument) for argument in arguments]
    if live and not any(target.installed for target in targets):
        raise typer.BadParameter("--live asks an app's workers: name a Celery app or Fencepost")
    findings = list(dict.fromkeys(f for target in targets for f in _findings(target, live=live)))
    show(findings, strict=strict, sarif_file=sarif_file, as_json=as_json)


def show(
    findings: Sequence[Finding], *, strict: bool, sarif_file: str | None, as_json: bool
) -> None:
    """Print findings in the way that is wanted, and exit with 1 if they say so."""
    wrong = list(findings) if strict else errors_in(findings)
    if sarif_file is not None:
        _write(sarif_file, sarif.report(findings))
    if sarif_file == STDOUT:
        pass
    elif as_json:
        found = [finding.to_dict() for finding in findings]
        output.as_json({"ok": not wrong, "findings": found})
    else:
        _show(findings)
    if wrong:
        raise typer.Exit(Exit.FOUND)


def _findings(target: Target, *, live: bool) -> Iterable[Finding]:
    found: list[Finding] = []
    for fencepost in target.installed:
        found += fencepost.findings()
        definitions = [*fencepost.registry, *fencepost.registry.refused, *target.definitions]
        if live:
            usual = usual_queue(fencepost.app)
            found += check_queues(definitions, served_queues(fencepost.app), usual=usual)
        elif (queues := declared_queues(fencepost.app)) is not None:
            found += check_queues(definitions, queues)
        for refused in fencepost.registry.refused:
            found += fencepost.registry.check(refused)
    for definition in target.everything:
        found += check(definition)
    return (finding.written_in(target.source) for finding in found)


def _show(findings: Sequence[Finding]) -> None:
    for finding in findings:
        typer.echo(str(finding))
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    typer.echo(f"{errors} errors, {len(findings) - errors} warnings")


def _write(file: str, text: str) -> None:
    if file == STDOUT:
        typer.echo(text)
    else:
        Path(file).write_text(text + "\n", "utf-8")
