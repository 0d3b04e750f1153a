"""The scenarios on containers: a fleet that `docker compose up` has started, hit by Docker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.compose.conftest import LEASE_TTL, WORKERS, ComposeFleet, Played

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]


def verified(played: Played) -> Any:
    """The report of a scenario in which everything was as promised."""
    assert played.exit_code == 0, played.err + played.out
    report = played.report
    assert all(claim["held"] for claim in report["claims"]), report["claims"]
    assert report["invariants"]["ok"]
    assert all(line["verdict"] == "ok" for line in report["invariants"]["invariants"])
    assert report["attempts"][-1]["status"] == "PROMOTED"
    page = (played.folder / "report.html").read_text()
    assert "as promised" in page
    assert report["struck"]["worker"] in page
    # Copied out of the fleet's volume: what the claims about files were checked on.
    assert list((played.folder / "artifacts" / "published").rglob("*.tar.gz"))
    return report


def as_found(fleet: ComposeFleet) -> None:
    """Every container runs, none is paused, and the workers are in the network."""
    states = fleet.states()
    assert states.pop("migrate") == "exited"
    assert set(states.values()) == {"running"}, states
    for worker in WORKERS:
        assert len(fleet.networks(worker)) == 1


def taken_over(report: Any) -> None:
    struck = report["struck"]
    assert struck["taken_over"]
    assert struck["latency_seconds"] <= LEASE_TTL + 1
    assert (struck["epoch_before"], struck["epoch_after"]) == (1, 2)
    assert re.fullmatch("[0-9a-f]{12,64}", struck["container"])


def test_a_paused_container_is_replaced_and_refused(
    compose_fleet: ComposeFleet, tmp_path: Path
) -> None:
    played = compose_fleet.play("freeze", tmp_path / "runs")
    report = verified(played)
    taken_over(report)
    assert {refusal["name"] for refusal in report["refusals"]} == {
        "ZOMBIE_WRITE_REJECTED",
        "execution.lease-lost",
    }
    assert "FROZEN: docker compose pause worker-" in played.err
    assert "THAWED: docker compose unpause worker-" in played.err
    as_found(compose_fleet)


def test_a_killed_container_is_replaced(compose_fleet: ComposeFleet, tmp_path: Path) -> None:
    played = compose_fleet.play("kill", tmp_path / "runs")
    report = verified(played)
    taken_over(report)
    assert report["refusals"] == []  # the dead write nothing
    assert "KILLED: docker compose kill worker-" in played.err
    as_found(compose_fleet)


def test_a_container_without_network_is_replaced_and_comes_back(
    compose_fleet: ComposeFleet, tmp_path: Path
) -> None:
    played = compose_fleet.play("partition", tmp_path / "runs")
    taken_over(verified(played))
    assert "CUT OFF: docker network disconnect" in played.err
    assert "answers again" in played.err
    as_found(compose_fleet)


def test_a_restart_of_redis_loses_nothing(compose_fleet: ComposeFleet, tmp_path: Path) -> None:
    played = compose_fleet.play("redis-restart", tmp_path / "runs")
    verified(played)
    assert "Redis is back" in played.err
    as_found(compose_fleet)


def test_a_release_outside_the_image_is_refused(
    compose_fleet: ComposeFleet, tmp_path: Path
) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "main.py").write_text("print('hello')\n")
    (tmp_path / "check.py").write_text("print('fine')\n")
    file = tmp_path / "release.toml"
    file.write_text(
        '[release]\nname = "tiny"\nversion = "1"\n[gate]\ncheck = "check.py"\n'
        '[[module]]\nname = "app"\npath = "app"\n'
    )
    played = compose_fleet.play("kill", tmp_path / "runs", "--file", str(file))
    assert played.exit_code == 78, played.err
    assert "not in the fleet's image" in played.err
    assert "Traceback" not in played.err
    as_found(compose_fleet)
