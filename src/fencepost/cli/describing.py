"""`fencepost describe`: what a saga or durable task does, without running it."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from fencepost.cli import output
from fencepost.cli.targets import find
from fencepost.saga.describe import as_mermaid, as_text, describe


def describe_targets(arguments: Sequence[str], *, mermaid: bool, as_json: bool) -> None:
    """Print what the arguments lead to, as text, Mermaid or JSON.

    Args:
        arguments: `module`, or `module:attribute`.
        mermaid: As a flowchart; several are apart by an empty line.
        as_json: One array with an object for each saga or task.
    """
    definitions = dict.fromkeys(one for a in arguments for one in find(a).everything)
    described = [describe(definition) for definition in definitions]
    if as_json:
        output.as_json(described)
        return
    show = as_mermaid if mermaid else as_text
    typer.echo("\n\n".join(show(one) for one in described))
