"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output, nothing else.")]
Runs = Annotated[Path, typer.Option("--runs", help="Where the folders of scenarios' runs are.")]
Postgres = Annotated[
    bool, typer.Option("--postgres", help="An embedded PostgreSQL in place of SQLite.")
]
Live = Annotated[bool, typer.Option("--live", help="Have a real model plan; needs OPENAI_API_KEY.")]
Model = Annotated[str | None, typer.Option("--model", help="With --live: the model's name.")]
BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", help="With --live: any OpenAI-compatible server."),
]


def planner_environment(*, live: bool, model: str | None, base_url: str | None) -> dict[str, str]:
    """What the workers' planner is told; checked before anything is started.

    Args:
        live: Ask a real model. Otherwise the planner stays offline, whatever the environment says.
        model: Its name at the server.
        base_url: The server.

    Raises:
        PlannerConfigurationError: Something is missing or can't be used; names the variable.
    """
    from tasks.planner import PlannerSettings

    if not live:
        if model or base_url:
            raise typer.BadParameter("--model and --base-url go with --live")
        return {"FACTORY_PLANNER": "offline"}
    told = {"FACTORY_PLANNER": "live"}
    if model:
        told["FACTORY_PLANNER_MODEL"] = model
    if base_url:
        told["OPENAI_BASE_URL"] = base_url
    PlannerSettings.from_environ(os.environ | told)
    return told
