"""The commands on real databases with executions in them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pydantic import BaseModel
from typer.testing import CliRunner

from fencepost import Saga, Status, step
from fencepost.cli import showing
from fencepost.cli.app import app
from fencepost.cli.exits import Exit
from fencepost.errors import NeedsPerson
from fencepost.records import EventName
from tests.integration.verify.story import Order, release, tell
from tests.support.inline import Inline


class Errand(BaseModel):
    number: int


CLEARED: set[int] = set()


@step
def ask(errand: Errand) -> Errand:
    if errand.number not in CLEARED:
        raise NeedsPerson("which road?")
    return errand


errands = Saga("errand", input=Errand).then(ask)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    monkeypatch.setenv("FENCEPOST_DATABASE_URL", url)
    for name in ("FENCEPOST_REDIS_URL", "FENCEPOST_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)
    return url


@pytest.fixture
def fleet(url: str) -> Iterator[Inline]:
    CLEARED.clear()
    fleet = Inline(url, [release, errands])
    yield fleet
    fleet.close()


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def said(*arguments: object) -> Any:
    told = run(*arguments, "--json")
    assert told.exit_code == Exit.OK, told.output
    return json.loads(told.stdout)


# -- migrate -------------------------------------------------------------------------------


def test_migrate_makes_the_tables_and_can_be_repeated(url):
    first, again = said("migrate"), said("migrate")
    assert first == again
    assert first["revision"]
    assert said("status") == []


def test_commands_on_an_empty_database_say_what_to_do(postgres_url):
    for arguments in (("status",), ("verify", "--all")):
        told = run(*arguments, "--database-url", postgres_url)
        assert told.exit_code == Exit.CONFIG
        assert "[schema.out-of-date]" in told.stderr
        assert told.stderr.endswith("next:  fencepost migrate\n")


def test_no_password_is_ever_printed(postgres_url):
    password = postgres_url.partition("://")[2].partition(":")[2].partition("@")[0]
    assert len(password) > 8
    url = ("--database-url", postgres_url)
    told = [run("status", *url), run("migrate", *url), run("migrate", *url, "--json")]
    told += [run("verify", "--all", *url), run("verify", "--all", *url, "--json")]
    assert [one.exit_code for one in told] == [Exit.CONFIG, *[Exit.OK] * 4]
    assert not any(password in one.output for one in told)


# -- status --------------------------------------------------------------------------------


def test_the_list_shows_the_newest_first_and_can_be_narrowed(fleet):
    root = tell(fleet)
    parked = fleet.run(errands, Errand(number=1))
    everything = said("status", "--limit", 100)
    assert len(everything) == 9
    assert everything[0]["execution_id"] == str(parked)
    assert [e["execution_id"] for e in said("status", "--status", "parked")] == [str(parked)]
    releases = said("status", "--saga", "release")
    assert [e["status"] for e in releases] == ["succeeded", "continued"]
    assert releases[-1]["execution_id"] == str(root)
    assert len(said("status", "--limit", 2)) == 2
    assert said("status", "--saga", "unheard-of") == []


def test_the_list_is_a_table_whose_ids_can_be_copied(fleet):
    parked = fleet.run(errands, Errand(number=1))
    shown = run("status")
    assert shown.exit_code == Exit.OK
    assert str(parked) in shown.stdout
    assert "which road?" in shown.stdout


def test_one_execution_with_its_chain(fleet):
    root = tell(fleet)
    shown = run("status", root)
    assert shown.exit_code == Exit.OK
    for words in ("release", "story", "continued", "8 executions", "fan-out", "compensating"):
        assert words in shown.stdout
    one = said("status", root)
    assert one["execution"]["execution_id"] == str(root)
    assert [c["seq"] for c in one["chain"]] == list(range(len(one["chain"])))


def test_a_parked_execution_comes_with_the_next_command(fleet):
    parked = fleet.run(errands, Errand(number=1))
    shown = run("status", parked)
    assert "which road?" in shown.stdout
    assert f"next: fencepost retry {parked} --why" in shown.stdout


@pytest.mark.parametrize("command", [("status",), ("events",), ("verify",)])
@pytest.mark.parametrize("name", ["12345678-1234-5678-1234-567812345678", "no-id"])
def test_what_does_not_exist(fleet, command, name):
    told = run(*command, name)
    assert told.exit_code == Exit.USAGE
    assert told.stderr == (
        f"error: no execution {name} in this database [execution.not-found]\n"
        "next:  fencepost status\n"
    )


# -- events --------------------------------------------------------------------------------


def lines(told: Any) -> list[dict[str, Any]]:
    assert told.exit_code == Exit.OK, told.output
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_the_audit_trail_of_one_execution_and_of_its_run(fleet):
    root = tell(fleet)
    own = lines(run("events", root, "--json"))
    assert {event["execution_id"] for event in own} == {str(root)}
    whole = lines(run("events", root, "--run", "--json"))
    assert [event["event_id"] for event in whole] == sorted(e["event_id"] for e in whole)
    assert EventName.ZOMBIE_WRITE_REJECTED in {event["name"] for event in whole}
    shown = run("events", root, "--run").stdout
    (refused,) = [line for line in shown.splitlines() if "ZOMBIE_WRITE_REJECTED" in line]
    assert "epoch 1 (now 5)" in refused
    assert "sink=ledger" in refused


def test_following_ends_with_the_execution(fleet, monkeypatch):
    root = fleet.start(release, Order(count=1))

    class Time:
        """The worker gets to the execution while we wait."""

        sleeps = 0

        def sleep(self, _seconds: float) -> None:
            self.sleeps += 1
            fleet.drain()

    clock = Time()
    monkeypatch.setattr(showing, "time", clock)
    followed = lines(run("events", root, "--run", "--follow", "--json"))
    assert clock.sleeps == 1
    assert followed == lines(run("events", root, "--run", "--json"))
    assert len({event["execution_id"] for event in followed}) == 2


def test_an_interrupted_follow_ends_quietly(fleet, monkeypatch):
    root = fleet.start(release, Order(count=1))

    class Time:
        def sleep(self, _seconds: float) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(showing, "time", Time())
    told = run("events", root, "--follow")
    assert told.exit_code == 130
    assert "execution.started" in told.stdout
    assert told.stderr == ""


# -- verify --------------------------------------------------------------------------------


def test_a_healthy_run_is_verified(fleet):
    root = tell(fleet)
    shown = run("verify", root)
    assert shown.exit_code == Exit.OK, shown.output
    assert "no violation found" in shown.stdout
    assert "not applicable" in shown.stdout
    assert said("verify", root)["ok"] is True
    assert said("verify", "--all")["run"] is None


def test_a_violation_is_named_and_fails_the_command(fleet):
    root = tell(fleet)
    with fleet.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE fencepost_executions SET head_seq = 7 WHERE saga = 'release'"
        )
    shown = run("verify", "--all")
    assert shown.exit_code == Exit.FOUND
    assert f"3 [chain.head] {root}" in shown.stdout
    assert "VIOLATED: 2 violations of invariant 3" in shown.stdout
    told = run("verify", root, "--json")
    assert told.exit_code == Exit.FOUND
    assert json.loads(told.stdout)["ok"] is False


def test_a_run_that_has_not_ended_is_said_not_to_have(fleet):
    root = fleet.start(release, Order(count=1))
    shown = run("verify", root)
    assert shown.exit_code == Exit.OK
    assert "1 executions have not ended" in shown.stdout


def test_the_broker_tells_where_the_leases_are(fleet, redis_url, monkeypatch):
    root = tell(fleet)
    client = redis.Redis.from_url(redis_url)
    client.zadd("fencepost:leases", {str(root): 1})
    client.close()
    monkeypatch.setenv("FENCEPOST_BROKER_URL", redis_url)
    told = run("verify", root, "--settle", "0")
    assert told.exit_code == Exit.FOUND
    assert "[orphan.lease]" in told.stdout


# -- retry ---------------------------------------------------------------------------------


def test_a_parked_execution_goes_on(fleet):
    parked = fleet.run(errands, Errand(number=1))
    CLEARED.add(1)
    told = run("retry", parked, "--why", "the left one")
    assert told.exit_code == Exit.OK, told.output
    assert str(parked) in told.stdout
    fleet.drain()
    assert fleet.row(parked).status is Status.SUCCEEDED
    (event,) = fleet.events(parked, EventName.UNPARKED)
    assert event.details["why"] == "the left one"


def test_retrying_as_json(fleet):
    parked = fleet.run(errands, Errand(number=1))
    assert said("retry", parked, "--why", "again")["status"] == "active"


def test_only_what_is_parked_can_be_retried(fleet):
    CLEARED.add(1)
    ended = fleet.run(errands, Errand(number=1))
    told = run("retry", ended, "--why", "again")
    assert told.exit_code == Exit.FOUND
    assert "[execution.wrong-state]" in told.stderr
    assert told.stderr.endswith(f"next:  fencepost status {ended}\n")


def test_the_console_script(fleet, sqlite_url):
    """As a user runs it: a process of its own, nothing but the environment."""
    parked = fleet.run(errands, Errand(number=1))
    command = [sys.executable, "-m", "fencepost", "status", str(parked), "--json"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == Exit.OK, told.stderr
    assert json.loads(told.stdout)["execution"]["status"] == "parked"
    assert told.stderr == ""
