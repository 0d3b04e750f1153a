"""Exit codes, and how an error is told: one line, its code, the next command to type."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from fencepost.errors import FencepostError


class Exit(IntEnum):
    """What the exit code says; 69 and 78 are those of sysexits.h."""

    OK = 0
    FOUND = 1
    """Something is violated, wrong, in the wrong state, or had to be left as it is."""
    USAGE = 2
    """The command line is wrong, or names what does not exist."""
    UNAVAILABLE = 69
    """A server does not answer."""
    CONFIG = 78
    """A setting is missing or wrong, or the database's schema is another one."""


EPILOG = (
    "Exit codes: 0 fine; 1 violations, findings or a wrong state; 2 wrong usage, or no such"
    " execution; 69 a server does not answer; 78 settings or schema."
)

JSON_WANTED = "fencepost.json"

_EXITS = {
    "cli.app-not-found": Exit.USAGE,
    "config.invalid": Exit.CONFIG,
    "effect.not-found": Exit.USAGE,
    "execution.not-found": Exit.USAGE,
    "payload.invalid": Exit.USAGE,
    "schema.out-of-date": Exit.CONFIG,
    "service.unavailable": Exit.UNAVAILABLE,
}

_NEXT = {
    "effect.not-found": "fencepost effects",
    "execution.not-found": "fencepost status",
    "execution.wrong-state": "fencepost status {execution_id}",
    "schema.out-of-date": "fencepost migrate",
}


class Commands(TyperGroup):
    """A group of commands that tells Fencepost's errors without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; its error becomes a message and an exit code."""
        from fencepost.errors import FencepostError

        try:
            return super().invoke(ctx)
        except FencepostError as problem:
            tell(problem, as_json=bool(ctx.meta.get(JSON_WANTED)))
            raise typer.Exit(_EXITS.get(problem.code, Exit.FOUND)) from None


def tell(problem: FencepostError, *, as_json: bool) -> None:
    """Write an error to stderr."""
    following = next_command(problem)
    if as_json:
        facts = {"code": problem.code, "message": problem.message, "next": following}
        typer.echo(json.dumps({"error": facts | {"fields": problem.fields}}, default=str), err=True)
        return
    typer.echo(f"error: {problem.message} [{problem.code}]", err=True)
    if following is not None:
        typer.echo(f"next:  {following}", err=True)


def next_command(problem: FencepostError) -> str | None:
    """What to type next, where that is known."""
    named: str | None = problem.fields.get("next")
    if named is not None:
        return named
    template = _NEXT.get(problem.code)
    if template is None:
        return None
    try:
        return template.format(**problem.fields)
    except KeyError:
        return None
