"""`fencepost check`: what can be known of an app before its workers start."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import typer

from fencepost.celery import Fencepost, Finding, Severity, installed_on
from fencepost.cli import output
from fencepost.cli.exits import Exit
from fencepost.errors import ConfigurationError, FencepostError

USUAL_NAMES = ("app", "celery", "fencepost", "fp")


class AppNotFoundError(FencepostError):
    """The argument leads to no Celery app or Fencepost."""

    code = "cli.app-not-found"


def check_app(application: str, *, as_json: bool) -> None:
    """Print all findings; exit with 1 if one of them is an error."""
    findings = load(application).findings()
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if as_json:
        output.as_json({"ok": not errors, "findings": findings})
    else:
        _show(findings)
    if errors:
        raise typer.Exit(Exit.FOUND)


def _show(findings: list[Finding]) -> None:
    for finding in findings:
        typer.echo(str(finding))
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    typer.echo(f"{errors} errors, {len(findings) - errors} warnings")


def load(application: str) -> Fencepost:
    """The Fencepost that `module:attribute` leads to, itself or by its Celery app.

    Raises:
        AppNotFoundError: The module can't be imported, or there is none in it.
        ConfigurationError: Fencepost isn't installed on the app.
    """
    module_name, _, attribute = application.partition(":")
    module = _imported(module_name)
    found = getattr(module, attribute, None) if attribute else _usual(module)
    if isinstance(found, Fencepost):
        return found
    if found is None or not _is_app(found):
        problem = f"{attribute!r} is no Celery app or Fencepost"
        if not attribute:
            problem = f"none of {', '.join(USUAL_NAMES)} is one: name it as {module_name}:attribute"
        raise AppNotFoundError(f"in {module_name}, {problem}", application=application)
    installed = installed_on(found)
    if installed is None:
        raise ConfigurationError(
            f"Fencepost is not installed on {application}: call fencepost.install(app, ...) in the"
            " module that makes the app"
        )
    return installed


def _usual(module: Any) -> Any:
    candidates = (getattr(module, name, None) for name in USUAL_NAMES)
    return next((one for one in candidates if isinstance(one, Fencepost) or _is_app(one)), None)


def _is_app(candidate: Any) -> bool:
    return hasattr(candidate, "conf") and hasattr(candidate, "tasks")


def _imported(module_name: str) -> Any:
    # A console script does not look where it was started, and `celery -A` does.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except FencepostError:
        raise
    except Exception as problem:
        raise AppNotFoundError(
            f"{module_name!r} can't be imported: {type(problem).__name__}: {problem}",
            next=f"python -c 'import {module_name}'",
        ) from problem
