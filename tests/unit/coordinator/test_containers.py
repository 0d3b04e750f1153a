"""What somebody is told who can't use --runtime compose, or not yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROW = '{"ID":"1","Service":"%s","State":"%s","Health":""}'


def scenario(tmp_path: Path, *arguments: str, docker: str | None = None) -> tuple[int, str]:
    """Run a scenario with a stand-in for `docker`, or with none."""
    programs = tmp_path / "bin"
    programs.mkdir()
    if docker is not None:
        program = programs / "docker"
        program.write_text(f"#!/bin/sh\n{docker}\n")
        program.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FENCEPOST_", "FACTORY_"))}
    done = subprocess.run(
        [sys.executable, "-m", "coordinator", "scenario", *arguments, "--runs", tmp_path / "runs"],
        cwd=ROOT,
        env=kept | {"PATH": str(programs)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "runs").glob("*"))  # nothing was begun, nothing is left
    return done.returncode, done.stderr


def test_there_is_no_docker(tmp_path: Path) -> None:
    code, said = scenario(tmp_path, "freeze", "--runtime", "compose")
    assert code == 69
    assert "there is no `docker` here" in said
    assert "docker compose up --build --detach" in said


@pytest.mark.parametrize(
    ("docker", "told"),
    [
        (
            "echo 'Cannot connect to the Docker daemon at unix:///x. Is it running?' >&2; exit 1",
            "Docker's engine doesn't answer",
        ),
        ("echo \"docker: 'compose' is not a docker command.\" >&2; exit 1", "Compose plugin"),
        ("exit 0", "the fleet is not up: there is no postgres, redis, worker-a, worker-b"),
        (
            "printf '%s\\n' "
            + " ".join(
                f"'{ROW % (service, state)}'"
                for service, state in {
                    "postgres": "running",
                    "redis": "exited",
                    "worker-a": "running",
                    "worker-b": "running",
                }.items()
            ),
            "the fleet is not up: redis is exited",
        ),
    ],
)
def test_the_fleet_can_not_be_used(tmp_path: Path, docker: str, told: str) -> None:
    code, said = scenario(tmp_path, "kill", "--runtime", "compose", docker=docker)
    assert code == 69
    assert told in said


@pytest.mark.parametrize("name", ["partition", "redis-restart"])
def test_what_needs_containers_says_so(tmp_path: Path, name: str) -> None:
    code, said = scenario(tmp_path, name)
    assert code == 78
    assert f"{name} can't be played on processes: use --runtime compose" in said


def test_what_needs_processes_says_so(tmp_path: Path) -> None:
    code, said = scenario(tmp_path, "term", "--runtime", "compose", docker="exit 1")
    assert code == 78
    assert "use --runtime processes" in said


@pytest.mark.parametrize("option", ["--embedded", "--postgres", "--lease-ttl=3"])
def test_a_fleet_has_settings_of_its_own(tmp_path: Path, option: str) -> None:
    code, said = scenario(tmp_path, "kill", "--runtime", "compose", option)
    assert code == 2
    assert option.partition("=")[0] in said
