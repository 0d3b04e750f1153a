"""A fleet of one's own: migrate, workers, releases, status, verify, Flower."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fencepost.testing import RedisServer, embedded_redis
from tests.acceptance.factory.program import EXAMPLE, ROOT, Done, coordinator, environment

LOGIN = "operator:flower-test"
NOWHERE = "redis://127.0.0.1:1/0"
READY_SECONDS = 60


@dataclass(frozen=True)
class Own:
    """Servers that are there, and the variables that name them."""

    folder: Path
    variables: dict[str, str]

    def coordinator(self, *arguments: str | Path) -> Done:
        return coordinator(*arguments, **self.variables)

    def spawn(self, name: str, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        """Start a Celery command; its output goes to a file of that name."""
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "coordinator.app", *arguments],
                cwd=ROOT,
                env=environment(**self.variables, **more),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")


@pytest.fixture(scope="module")
def redis_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with embedded_redis(tmp_path_factory.mktemp("operations-redis")) as server:
        yield server


@pytest.fixture(scope="module")
def own(redis_of_our_own: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Own:
    folder = tmp_path_factory.mktemp("operations")
    variables = {
        "FENCEPOST_DATABASE_URL": f"sqlite:///{folder / 'factory.sqlite3'}",
        "FENCEPOST_BROKER_URL": redis_of_our_own.url_of(0),
        "FENCEPOST_REDIS_URL": redis_of_our_own.url_of(1),
        "FENCEPOST_LEASE_TTL": "5",
        "FACTORY_STAGING_DIR": str(folder / "staging"),
        "FACTORY_PUBLISH_DIR": str(folder / "published"),
    }
    return Own(folder, variables)


@pytest.fixture(scope="module")
def fleet(own: Own) -> Iterator[Own]:
    """Migrated, with two workers and Flower at work."""
    migrated = own.coordinator("migrate")
    assert migrated.exit_code == 0, migrated.err
    names = ("worker-a", "worker-b")
    options = ("--concurrency", "1", "--loglevel", "INFO", "--hostname")
    processes = [own.spawn(name, "worker", *options, f"{name}@%h") for name in names]
    port = str(_free_port())
    flower = ("flower", f"--conf={ROOT / 'flower.conf'}", f"--port={port}")
    processes.append(own.spawn("flower", *flower, FLOWER_BASIC_AUTH=LOGIN))
    own.variables["TEST_FLOWER_PORT"] = port
    try:
        for name in names:
            wait_until(lambda name=name: " ready." in own.log(name), f"{name} is ready")
        wait_until(lambda: _answers(own), "Flower answers")
        yield own
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until(condition: Any, what: str, seconds: float = READY_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.1)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def flower(own: Own, path: str) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{own.variables['TEST_FLOWER_PORT']}{path}")
    token = base64.b64encode(LOGIN.encode()).decode()
    request.add_header("Authorization", f"Basic {token}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def _answers(own: Own) -> bool:
    try:
        return len(flower(own, "/api/workers?status=1")) == 2
    except OSError:
        return False


@pytest.fixture(scope="module")
def released(fleet: Own) -> Done:
    """A release that went its way on that fleet."""
    return fleet.coordinator("release", EXAMPLE, "--key", "spring", "--json")


def test_a_release_is_followed_to_its_promotion(released: Done) -> None:
    assert released.exit_code == 0, released.err
    assert released.json["status"] == "succeeded"
    assert [a["release"]["status"] for a in released.json["attempts"]] == ["continued", "succeeded"]
    assert "gate ✗" in released.err
    assert "promote ✓" in released.err


def test_the_same_key_finds_the_release_that_is_there(fleet: Own, released: Done) -> None:
    again = fleet.coordinator("release", EXAMPLE, "--key", "spring", "--no-wait", "--json")
    assert again.exit_code == 0
    assert again.json == {"execution_id": released.json["execution_id"], "created": False}


def changed_example(folder: Path, *changes: tuple[str, str]) -> Path:
    """The example's release file, elsewhere and with changes."""
    text = EXAMPLE.read_text()
    for name in ("path", "check"):
        text = text.replace(f'{name} = "', f'{name} = "{EXAMPLE.parent}/')
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    file = folder / "release.toml"
    file.write_text(text)
    return file


def test_a_key_with_another_release_is_refused(fleet: Own, released: Done, tmp_path: Path) -> None:
    changed = changed_example(tmp_path, ("2026.1", "2026.2"))
    refused = fleet.coordinator("release", changed, "--key", "spring")
    assert refused.exit_code == 1
    assert "execution.key-conflict" in refused.err


def test_a_release_that_is_undone_ends_with_1(fleet: Own, released: Done) -> None:
    refused = fleet.coordinator("release", EXAMPLE, "--json")
    assert refused.exit_code == 1
    assert refused.json["status"] == "failed"
    assert "promoted already" in refused.json["attempts"][0]["release"]["reason"]


def test_a_release_without_an_allowed_plan_waits_for_a_person(fleet: Own, tmp_path: Path) -> None:
    changes = (("2026.1", "2026.3"), ('"--abi-compat=v2", ', ""))
    parked = fleet.coordinator("release", changed_example(tmp_path, *changes), "--json")
    assert parked.exit_code == 1
    assert parked.json["status"] == "parked"
    shown = fleet.coordinator("status", parked.json["execution_id"])
    assert f"fencepost retry {parked.json['execution_id']} --why" in shown.out
    # Its attempt is undone all the same, and its lock is free.
    verified = fleet.coordinator("verify", parked.json["execution_id"], "--json")
    assert verified.exit_code == 0, verified.out


def test_status_lists_releases_and_shows_one(fleet: Own, released: Done) -> None:
    listed = fleet.coordinator("status", "--json")
    assert released.json["execution_id"] in [row["execution_id"] for row in listed.json]
    shown = fleet.coordinator("status", released.json["execution_id"])
    assert shown.exit_code == 0
    for words in ("storefront 2026.1: succeeded", "attempt 2", "payment-engine", "plan: add"):
        assert words in shown.out


def test_a_release_is_verified_with_redis_and_broker(fleet: Own, released: Done) -> None:
    verified = fleet.coordinator("verify", released.json["execution_id"], "--json")
    assert verified.exit_code == 0, verified.out
    assert [line["verdict"] for line in verified.json["invariants"]] == ["ok"] * 9
    assert not any("was given" in n for line in verified.json["invariants"] for n in line["notes"])


def test_nothing_is_left_to_sweep(fleet: Own, released: Done) -> None:
    stray = fleet.folder / "staging" / "lost" / "a-1.e1.tar.gz"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"of a worker that died")
    found = fleet.coordinator("sweep", "--json")
    assert found.json == {"staging": ["lost/a-1.e1.tar.gz"], "published": []}
    removed = fleet.coordinator("sweep", "--hours", "0", "--remove")
    assert (removed.exit_code, stray.exists()) == (0, False)
    assert "1 removed" in removed.out


def test_a_scenario_keeps_away_from_other_peoples_workers(fleet: Own, tmp_path: Path) -> None:
    refused = fleet.coordinator("scenario", "kill", "--runs", tmp_path)
    assert refused.exit_code == 78
    assert "worker-a@" in refused.err
    assert "--embedded" in refused.err


def test_flower_shows_workers_and_tasks(fleet: Own, released: Done) -> None:
    workers = flower(fleet, "/api/workers?status=1")
    assert {name.partition("@")[0] for name in workers} == {"worker-a", "worker-b"}
    assert all(workers.values())

    # An execution is one Celery task, under its own id, however often it is dispatched.
    ids = {released.json["execution_id"]}
    ids |= {module["execution_id"] for a in released.json["attempts"] for module in a["modules"]}

    def succeeded() -> set[str]:
        tasks = flower(fleet, "/api/tasks").values()
        return {task["uuid"] for task in tasks if task["state"] == "SUCCESS"}

    # Events reach Flower on their own way, a moment later.
    wait_until(lambda: ids <= succeeded(), "Flower has seen every execution end")


@pytest.mark.parametrize("command", ["worker", "flower"])
def test_without_settings_celery_says_what_to_type(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "coordinator.app", command],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78
    assert "FENCEPOST_DATABASE_URL" in done.stderr
    assert "export FENCEPOST_BROKER_URL=" in done.stderr
    assert "Traceback" not in done.stderr


def test_servers_that_do_not_answer_are_named(own: Own) -> None:
    own.coordinator("migrate")
    done = coordinator("release", EXAMPLE, **own.variables | {"FENCEPOST_BROKER_URL": NOWHERE})
    assert done.exit_code == 69
    assert "127.0.0.1:1" in done.err
    assert "Traceback" not in done.err


def test_a_worker_refuses_to_start_where_it_could_not_work(own: Own, tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    elsewhere = {
        "FENCEPOST_DATABASE_URL": f"sqlite:///{tmp_path / 'empty.sqlite3'}",
        "FACTORY_STAGING_DIR": str(tmp_path / "a-file" / "staging"),
    }
    refused = Own(tmp_path, own.variables | elsewhere)
    assert refused.spawn("worker", "worker").wait(60) == 78
    said = refused.log("worker")
    assert "python -m coordinator migrate" in said
    assert "FACTORY_STAGING_DIR" in said


def test_a_worker_without_guards_refuses_a_database_that_is_not_a_demonstrations(own: Own) -> None:
    own.coordinator("migrate")
    assert own.spawn("unfenced", "worker", FACTORY_UNFENCED="1").wait(60) == 78
    assert "demo --unfenced" in own.log("unfenced")
