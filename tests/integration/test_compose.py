"""docker-compose.yml passes Docker Compose's own check and keeps its promises."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = Path(sys.executable).with_name("docker-compose")
FLEET = {"redis", "postgres", "migrate", "worker-a", "worker-b", "coordinator", "flower"}


def render(folder: Path, **environment: str) -> dict[str, Any]:
    """What `docker compose config` makes of the file, in a folder without anyone's `.env`."""
    shutil.copy(ROOT / "docker-compose.yml", folder)
    arguments = ["--profile", "release", "config", "--format", "json"]
    rendered = subprocess.run(
        [COMPOSE, *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert rendered.returncode == 0, rendered.stderr
    assert not rendered.stderr, rendered.stderr
    parsed: dict[str, Any] = json.loads(rendered.stdout)
    return parsed


@pytest.fixture
def fleet(tmp_path: Path) -> dict[str, Any]:
    services: dict[str, Any] = render(tmp_path)["services"]
    return services


def test_the_fleet_is_all_there(tmp_path: Path) -> None:
    rendered = render(tmp_path)
    assert rendered["name"] == "fencepost"
    assert set(rendered["services"]) == FLEET
    assert rendered["services"]["coordinator"]["profiles"] == ["release"]


def test_every_long_running_service_has_a_health_check(fleet: dict[str, Any]) -> None:
    checked = {name for name, service in fleet.items() if service["healthcheck"].get("test")}
    assert checked == FLEET - {"migrate"}


def test_every_service_waits_for_what_it_needs(fleet: dict[str, Any]) -> None:
    def conditions(name: str) -> dict[str, str]:
        return {on: how["condition"] for on, how in fleet[name].get("depends_on", {}).items()}

    assert conditions("migrate") == {"postgres": "service_healthy"}
    for worker in ("worker-a", "worker-b"):
        assert conditions(worker) == {
            "migrate": "service_completed_successfully",
            "redis": "service_healthy",
            "postgres": "service_healthy",
        }
    assert set(conditions("coordinator").values()) == {"service_healthy"}
    assert conditions("flower")["redis"] == "service_healthy"


def test_ports_are_published_on_loopback_only(fleet: dict[str, Any]) -> None:
    published = [port for service in fleet.values() for port in service.get("ports", [])]
    assert len(published) == 3
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}


def test_redis_keeps_what_it_is_told(fleet: dict[str, Any]) -> None:
    command = " ".join(fleet["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert "--requirepass fencepost-dev" in command


def test_passwords_come_from_the_environment(tmp_path: Path) -> None:
    rendered = json.dumps(
        render(
            tmp_path,
            POSTGRES_PASSWORD="pg-secret",
            REDIS_PASSWORD="redis-secret",
            FLOWER_BASIC_AUTH="boss:flower-secret",
        )
    )
    assert "fencepost-dev" not in rendered
    for secret in ("pg-secret", "redis-secret", "boss:flower-secret"):
        assert secret in rendered


def test_the_broker_has_a_database_of_its_own(fleet: dict[str, Any]) -> None:
    environment = fleet["worker-a"]["environment"]
    assert environment["FENCEPOST_BROKER_URL"] != environment["FENCEPOST_REDIS_URL"]


def test_workers_get_time_to_finish_a_step(fleet: dict[str, Any]) -> None:
    assert fleet["worker-a"]["stop_grace_period"] == "1m0s"
    assert all("stop_grace_period" in service for service in fleet.values())


def test_the_example_environment_names_every_variable_that_is_read() -> None:
    read = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text()))
    example = (ROOT / ".env.example").read_text()
    assert set(re.findall(r"^(\w+)=", example, re.MULTILINE)) == read
