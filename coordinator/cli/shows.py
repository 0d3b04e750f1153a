"""Commands that start workers of their own: scenario, demo."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coordinator.cli.options import (
    AsJson,
    BaseUrl,
    Live,
    Model,
    Postgres,
    Runs,
    planner_environment,
)

DEMO_TTL = 5.0
REAL_TTL = 30.0


class Scenario(StrEnum):
    """What happens to a worker in mid-step."""

    FREEZE = "freeze"
    KILL = "kill"
    TERM = "term"
    LATE_WRITE = "late-write"
    PARTITION = "partition"
    REDIS_RESTART = "redis-restart"


class RuntimeName(StrEnum):
    """Where the workers are."""

    PROCESSES = "processes"
    COMPOSE = "compose"


def scenario(
    name: Annotated[Scenario, typer.Argument(help="What happens to a worker in mid-step.")],
    *,
    runtime: Annotated[
        RuntimeName,
        typer.Option(
            "--runtime", help="Workers of its own, or the fleet that `docker compose up` started."
        ),
    ] = RuntimeName.PROCESSES,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, max=1000, help="How many releases.")
    ] = 1,
    lease_ttl: Annotated[
        float | None,
        typer.Option(
            "--lease-ttl",
            min=1.0,
            help="Seconds that a lease lasts: 5 by default, 30 for late-write.",
        ),
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Start servers, not those of the environment.")
    ] = False,
    postgres: Postgres = False,
    file: Annotated[
        Path | None, typer.Option("--file", help="A release.toml; by default the example.")
    ] = None,
    live: Live = False,
    model: Model = None,
    base_url: BaseUrl = None,
    as_json: AsJson = False,
    runs: Runs = Path("runs"),
) -> None:
    """Hit a worker in mid-step, and see that the release takes no harm.

    Uses the servers of the environment with workers of its own; no others may be at work there.
    freeze: SIGSTOP, and SIGCONT when another worker has finished its work. kill: SIGKILL, for
    good; prints how long the takeover took. term: SIGTERM; prints how long the hand-over took.
    late-write: SIGSTOP until the release's deadline has passed and it is undone, then SIGCONT.

    With --runtime compose it is the fleet that `docker compose up` has started, with
    `docker compose pause`, `unpause` and `kill`; and two more: partition disconnects a worker from
    the network and connects it again, redis-restart restarts Redis. The fleet is left as it was.
    """
    from coordinator import readiness
    from coordinator.performance import PLAYS, Options
    from coordinator.settings import load
    from coordinator.site import Servers

    servers = Servers()
    if runtime is RuntimeName.COMPOSE:
        given = {
            "--embedded": embedded,
            "--postgres": postgres,
            "--lease-ttl": lease_ttl is not None,
            "--live": live,
        }
        _refuse_with_compose([option for option, value in given.items() if value])
    elif not (embedded or postgres) and name.value in PLAYS["processes"]:
        settings = load()
        readiness.check_connections(settings)
        servers = Servers(settings.database, settings.broker, settings.leases)
    options = Options(
        scenario=name.value,
        runtime=runtime.value,
        file=file,
        lease_ttl=lease_ttl or (REAL_TTL if name is Scenario.LATE_WRITE else DEMO_TTL),
        repeat=repeat,
        servers=servers,
        postgres=postgres,
        planner=planner_environment(live=live, model=model, base_url=base_url),
        runs=runs,
    )
    _perform(options, as_json=as_json)


def _refuse_with_compose(options: Sequence[str]) -> None:
    if options:
        raise typer.BadParameter(
            f"{', '.join(options)}: the fleet has its own servers and settings; give them to"
            " `docker compose up`, as in FENCEPOST_LEASE_TTL=5 docker compose up --detach"
        )


def demo(
    *,
    postgres: Postgres = False,
    real_clock: Annotated[
        bool, typer.Option("--real-clock", help="A lease of 30 s, as in production, not of 5.")
    ] = False,
    unfenced: Annotated[
        bool, typer.Option("--unfenced", help="With the guards off, to see the damage.")
    ] = False,
    database_url: Annotated[
        str | None, typer.Option("--database-url", help="A database of yours.")
    ] = None,
    broker_url: Annotated[
        str | None, typer.Option("--broker-url", help="A Redis of yours for Celery.")
    ] = None,
    redis_url: Annotated[
        str | None, typer.Option("--redis-url", help="A Redis of yours for the leases.")
    ] = None,
    live: Live = False,
    model: Model = None,
    base_url: BaseUrl = None,
    as_json: AsJson = False,
    runs: Runs = Path("runs"),
) -> None:
    """The story in three acts: a failed gate, a frozen worker, a zombie that returns.

    Starts servers and two workers, and ends them. With --unfenced the exit code is 3, and the
    verifier names what has been broken.
    """
    from coordinator.performance import Options
    from coordinator.site import Servers
    from coordinator.unfenced import refuse_foreign_servers

    servers = Servers(database_url or None, broker_url or redis_url or None, redis_url or None)
    if unfenced:
        named = {
            "--database-url": database_url,
            "--broker-url": broker_url,
            "--redis-url": redis_url,
        }
        refuse_foreign_servers([option for option, value in named.items() if value])
    options = Options(
        scenario="freeze",
        lease_ttl=REAL_TTL if real_clock else DEMO_TTL,
        servers=servers,
        postgres=postgres,
        guards=not unfenced,
        planner=planner_environment(live=live, model=model, base_url=base_url),
        runs=runs,
    )
    _perform(options, as_json=as_json)


def _perform(options: object, *, as_json: bool) -> None:
    from coordinator.narrator import Narrator, console
    from coordinator.performance import Options, perform

    assert isinstance(options, Options)  # imported late, so that --help is quick
    result = perform(options, Narrator(console(to_stderr=as_json)))
    if as_json:
        typer.echo(json.dumps(result.report, indent=2, default=str))
    if result.exit_code:
        raise typer.Exit(result.exit_code)
