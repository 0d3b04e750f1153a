"""A fleet of containers on a Docker engine that is there: `make compose-test` sees to both."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEASE_TTL = 10
SECONDS = 500
WORKERS = ("worker-a", "worker-b")


@dataclass(frozen=True)
class Played:
    """A scenario that has been played through the command line."""

    exit_code: int
    out: str
    err: str
    folder: Path

    @property
    def report(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class ComposeFleet:
    """A compose project of the tests' own."""

    environment: dict[str, str]

    def docker(self, *arguments: str) -> str:
        done = subprocess.run(
            ["docker", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"docker {' '.join(arguments)}\n{done.stderr}"
        return done.stdout

    def states(self) -> dict[str, str]:
        """`running`, `paused`, ... by service."""
        rows = self.docker("compose", "ps", "--all", "--format", "json").splitlines()
        parsed = [json.loads(row) for row in rows]
        return {row["Service"]: row["State"] for row in parsed}

    def networks(self, service: str) -> list[str]:
        container = self.docker("compose", "ps", "--quiet", service).strip()
        (found,) = json.loads(self.docker("inspect", container))
        return sorted(found["NetworkSettings"]["Networks"])

    def play(self, scenario: str, runs: Path, *arguments: str) -> Played:
        command = (sys.executable, "-m", "coordinator", "scenario", scenario)
        done = subprocess.run(
            [*command, "--runtime", "compose", "--runs", runs, "--json", *arguments],
            cwd=ROOT,
            env=self.environment | {"COLUMNS": "120"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        (folder,) = runs.iterdir() if runs.exists() and any(runs.iterdir()) else (runs,)
        return Played(done.returncode, done.stdout, done.stderr, folder)


def free_ports(count: int) -> list[str]:
    """Ports of the loopback interface that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [str(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


@pytest.fixture(scope="session")
def compose_fleet() -> Iterator[ComposeFleet]:
    """What a user has after `docker compose up --detach`, with a lease time for tests."""
    ours = ("FENCEPOST_", "FACTORY_", "OPENAI_", "COMPOSE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    redis, postgres, flower = free_ports(3)
    fleet = ComposeFleet(
        kept
        | {
            "COMPOSE_PROJECT_NAME": f"fencepost-test-{secrets.token_hex(3)}",
            "REDIS_PORT": redis,
            "POSTGRES_PORT": postgres,
            "FLOWER_PORT": flower,
            "FENCEPOST_LEASE_TTL": str(LEASE_TTL),
            "FENCEPOST_VISIBILITY_TIMEOUT": str(2 * LEASE_TTL),
        }
    )
    try:
        fleet.docker("compose", "up", "--detach", "--no-build")
        yield fleet
    finally:
        fleet.docker("compose", "down", "--volumes", "--remove-orphans", "--timeout", "5")
