"""The release factory: releases on a Celery fleet whose workers may freeze, die and come back.

To see it without any servers of yours: python -m coordinator demo
"""

from __future__ import annotations

import sys

import typer

from coordinator.cli import exits, operations, shows
from fencepost.errors import FencepostError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help=__doc__,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(operations.migrate)
app.command()(operations.release)
app.command()(operations.status)
app.command()(operations.verify)
app.command()(operations.sweep)
app.command()(shows.scenario)
app.command()(shows.demo)


def main() -> int:
    """Run a command.

    Returns:
        The exit code of an error that is known: its code and message go to standard error.
        Everything else ends the program with the code that the command has chosen.
    """
    try:
        with exits.terminable():
            app()
    except FencepostError as problem:
        print(f"{problem.code}: {problem}", file=sys.stderr)
        return exits.code_for(problem)
    return 0
