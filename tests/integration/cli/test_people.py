"""The commands with which people decide, on real databases; no app and no worker at hand."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from getpass import getuser
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from fencepost import Saga, Status
from fencepost.cli import services, upkeep
from fencepost.cli.app import app
from fencepost.cli.exits import Exit
from fencepost.records import EventName
from fencepost.stores.sql import pruning
from fencepost.stores.sql.schema import executions
from tests.integration.operating.office import (
    DONE,
    SAGAS,
    TROUBLE,
    Order,
    asked,
    charge,
    final,
    orders,
    plain,
    reserve,
    ship,
    told,
    whole,
)
from tests.support.inline import Inline

longer = Saga("order", input=Order).then(reserve).then(charge).then(ship)
WHY = ("--why", "it has to be")
NO_ID = "12345678-1234-5678-1234-567812345678"


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inline]:
    url: str = request.getfixturevalue(f"{request.param}_url")
    monkeypatch.setenv("FENCEPOST_DATABASE_URL", url)
    TROUBLE.clear()
    DONE.clear()
    fleet = Inline(url, SAGAS)
    yield fleet
    fleet.close()


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fine(*arguments: object) -> str:
    told = run(*arguments)
    assert told.exit_code == Exit.OK, told.output
    return str(told.stdout)


def said(*arguments: object) -> Any:
    return json.loads(fine(*arguments, "--json"))


def refused(*arguments: object, code: int = Exit.FOUND) -> str:
    told = run(*arguments)
    assert told.exit_code == code, told.output
    assert "Traceback" not in told.output
    assert told.stdout == ""
    return " ".join(told.stderr.replace("│", " ").split())


def parked(fleet: Inline, number: int = 1) -> UUID:
    TROUBLE["ship"] = "ask"
    execution_id = fleet.run(orders, Order(number=number))
    TROUBLE.clear()
    return execution_id


def test_cancelling(fleet):
    execution_id = fleet.run(asked, Order(number=1))
    shown = fine("cancel", execution_id, *WHY, "--by", "ada")
    assert "is cancelled: it undoes its work, a worker takes it within about a second" in shown
    assert "turned     back: cancelled by ada: it has to be" in fine("status", execution_id)
    fleet.drain()
    assert fleet.row(execution_id).status is Status.COMPENSATED
    assert "cancelled by ada" in fine("status", execution_id)
    problem = refused("cancel", execution_id, *WHY)
    assert "has ended" in problem
    assert "[execution.wrong-state]" in problem
    assert f"next: fencepost status {execution_id}" in problem
    other = fleet.run(asked, Order(number=2))
    assert said("cancel", other, *WHY)["turned_back"]["code"] == "execution.cancelled"


def test_who_decides_is_by_default_who_types(fleet):
    execution_id = fleet.run(asked, Order(number=1))
    fine("pause", execution_id, *WHY)
    (event,) = fleet.events(execution_id, EventName.PAUSED)
    assert event.details["by"] == getuser()


def test_where_nobody_is_logged_in_one_has_to_say_who(fleet, monkeypatch):
    def nobody():
        raise OSError("No username set in the environment")

    monkeypatch.setattr(services, "getuser", nobody)
    execution_id = fleet.run(asked, Order(number=1))
    assert "say who" in refused("pause", execution_id, *WHY, code=Exit.USAGE)
    fine("pause", execution_id, *WHY, "--by", "ada")


def test_pausing_and_resuming(fleet):
    execution_id = fleet.start(orders, Order(number=1))
    shown = fine("pause", execution_id, *WHY)
    assert "is paused since" in shown
    assert f"next: fencepost resume {execution_id} --why" in shown
    status = fine("status", execution_id)
    assert "paused     since" in status
    assert f"next: fencepost resume {execution_id}" in status
    assert "paused" in fine("status")
    assert "1 executions of it are taken" in fine("resume", execution_id, *WHY)
    assert "is not paused" in refused("resume", execution_id, *WHY)
    fleet.drain()
    assert fleet.row(execution_id).status is Status.SUCCEEDED
    waiting = fleet.run(asked, Order(number=2))
    assert said("pause", waiting, *WHY)["paused_at"] is not None
    resumed = said("resume", waiting, *WHY)
    assert (resumed["execution"]["paused_at"], resumed["due"]) == (None, [])
    fine("pause", waiting, *WHY)
    assert "nothing of it is due now" in fine("resume", waiting, *WHY)


def test_what_is_parked_comes_with_the_commands_that_have_it_go_on(fleet):
    execution_id = parked(fleet)
    shown = fine("status", execution_id)
    assert f"next: fencepost retry {execution_id} --why '...'" in shown
    for command in ("skip", "cancel"):
        assert f"or:   fencepost {command} {execution_id} --why '...'" in shown
    assert f"or:   fencepost resolve {execution_id} --result '...' --why '...'" in shown
    TROUBLE["ship"] = "ask"
    past = fine("status", fleet.run(final, Order(number=2)))
    assert "fencepost resolve" in past
    assert "fencepost skip" not in past
    assert "fencepost cancel" not in past


def test_skipping(fleet):
    execution_id = parked(fleet)
    assert "goes on without step 'ship'" in fine("skip", execution_id, *WHY, "--by", "ada")
    assert "decided    skip ship, by ada: it has to be" in fine("status", execution_id)
    fleet.drain()
    assert fleet.row(execution_id).status is Status.COMPENSATED
    assert "only about the step of a parked one" in refused("skip", execution_id, *WHY)


def test_skipping_past_the_pivot_leads_to_resolving(fleet):
    TROUBLE["ship"] = "ask"
    execution_id = fleet.run(final, Order(number=1))
    problem = refused("skip", execution_id, *WHY)
    assert f"next: fencepost resolve {execution_id} --result '...' --why '...'" in problem


def test_resolving_a_step(fleet):
    execution_id = parked(fleet)
    shown = fine("resolve", execution_id, "--result", '"by hand"', *WHY)
    assert "goes on with this as step 'ship'" in shown
    fleet.drain()
    assert fleet.row(execution_id).result == "by hand, thanks"
    other = parked(fleet, 2)
    assert said("resolve", other, "--result", "null", *WHY)["directive"]["result"] is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "give the step's result"),
        (("--result", "by hand"), "needs its quotes"),
        (("--landed", "1"), "an effect has a sink and a key"),
        (("--not-landed",), "an effect has a sink and a key"),
        (("order:1", "--result", "1"), "--result is for the step of an execution"),
        (("order:1",), "give --landed RESULT or --not-landed"),
    ],
)
def test_resolve_is_for_a_step_or_for_an_effect(fleet, arguments, told):
    execution_id = parked(fleet)
    assert told in refused("resolve", execution_id, *arguments, *WHY, code=Exit.USAGE)
    assert fleet.row(execution_id).status is Status.PARKED


def test_reopening(fleet):
    TROUBLE["look"] = "fail"
    execution_id = fleet.run(plain, Order(number=1))
    TROUBLE.clear()
    assert "goes on: a worker takes it" in fine("retry", execution_id, *WHY)
    fleet.drain()
    assert fleet.row(execution_id).status is Status.SUCCEEDED


def test_signalling(fleet):
    execution_id = fleet.run(told, Order(number=1))
    status = fine("status", execution_id)
    assert "waits for  signal reading" in status
    assert f"next: fencepost signal {execution_id} reading --payload '...'" in status
    assert "waits for signal reading" in fine("status")
    other = fine("signal", execution_id, "other", "--payload", "1")
    assert "doesn't wait for other now (it waits for signal reading)" in other
    value = ("--payload", '{"value": 7}', "--key", "k")
    assert "goes on within about a second" in fine("signal", execution_id, "reading", *value)
    assert "nothing is stored" in fine("signal", execution_id, "reading", *value)
    assert said("signal", execution_id, "reading", *value)["created"] is False
    fleet.drain()
    assert fleet.row(execution_id).result == 7
    assert "it takes no signals" in refused("signal", execution_id, "reading", *value[:2])
    assert "is not JSON" in refused(
        "signal", execution_id, "reading", "--payload", "x", code=Exit.USAGE
    )


def test_approving_and_rejecting(fleet):
    first, second = (fleet.run(asked, Order(number=number)) for number in (1, 2))
    status = fine("status", first)
    assert "waits for  approval manager" in status
    assert f"next: fencepost approve {first} manager --why '...'" in status
    assert f"or:   fencepost reject {first} manager --why '...'" in status
    waiting = fine("status", "--waiting")
    assert "approval manager" in waiting
    assert f"next: fencepost approve {first} manager --why '...'" in waiting
    assert "manager is approved: execution" in fine("approve", first, "manager", *WHY)
    assert "manager was approved before, by" in fine("approve", first, "manager", *WHY)
    assert "has approved 'manager' already" in refused("reject", first, "manager", *WHY)
    assert said("reject", second, "manager", *WHY)["signal"]["payload"]["approved"] is False
    fleet.drain()
    assert fleet.row(first).status is Status.SUCCEEDED
    assert fleet.row(second).status is Status.COMPENSATED
    assert "nothing waits for a person" in fine("status", "--waiting")
    third = fleet.start(asked, Order(number=3))
    assert "doesn't wait for manager now (it is active)" in fine("approve", third, "manager", *WHY)


def test_what_waits_for_a_person_is_listed(fleet):
    first = parked(fleet)
    second = fleet.run(asked, Order(number=2))
    fleet.run(told, Order(number=3))
    fleet.start(orders, Order(number=4))
    assert [e["execution_id"] for e in said("status", "--waiting")] == [str(first), str(second)]
    assert [e["saga"] for e in said("status", "--waiting", "--saga", "asked")] == ["asked"]
    assert len(said("status", "--waiting", "--limit", 1)) == 1
    assert "ship needs somebody" in fine("status", "--waiting")
    assert run("status", first, "--waiting").exit_code == Exit.USAGE
    assert run("status", "--waiting", "--status", "parked").exit_code == Exit.USAGE


def test_what_else_a_status_tells(fleet):
    execution, _ = fleet.engine.create(
        orders, Order(number=1), priority=9, deadline=timedelta(hours=1)
    )
    shown = fine("status", execution.execution_id)
    assert "deadline   20" in shown
    assert "placed     by Celery's routing, priority 9" in shown
    TROUBLE["reserve"] = "ask"
    family = fleet.run(whole, Order(number=3))
    assert "waits for  the children of pieces: 3 live" in fine("status", family)
    child = fleet.store.children(family, "pieces", 1)[0].execution_id
    assert "parent" in fine("status", child)
    assert "once its parent comes to it" not in fine("retry", child, *WHY)


def test_forking(fleet):
    execution_id = parked(fleet)
    shown = fine("fork", execution_id, *WHY)
    assert "with its first 2 entries" in shown
    assert "is done again, its effects too" in shown
    fork = said("fork", execution_id, "--at", 0, "--input", '{"number": 5}', *WHY)
    assert (fork["input"], fork["head_seq"]) == ({"number": 5}, 0)
    assert f"fork of    {execution_id}" in fine("status", fork["execution_id"])
    problem = refused("fork", execution_id, "--at", 7, *WHY)
    assert f"next: fencepost fork {execution_id} --at 2 --why" in problem
    assert "is not JSON" in refused("fork", execution_id, "--input", "x", *WHY, code=Exit.USAGE)


# -- with an app ---------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An app that knows another version of the orders, and the rest as the fleet does."""
    (tmp_path / "office_shop.py").write_text(
        textwrap.dedent(
            """
            import os
            import fencepost
            from celery import Celery
            from tests.integration.cli.test_people import longer
            from tests.integration.operating.office import asked, final, told

            app = Celery("shop", broker="redis://127.0.0.1:1/0")
            url = os.environ["FENCEPOST_DATABASE_URL"]
            fencepost.install(app, sagas=[longer, asked, final, told], database_url=url)
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "office_shop:app"
    sys.modules.pop("office_shop", None)


def test_with_the_app_at_hand_values_are_held_to_their_types(fleet, shop):
    execution_id = fleet.run(told, Order(number=1))
    payload = ("--payload", '{"value": "much"}', "--app", shop)
    problem = refused("signal", execution_id, "reading", *payload, code=Exit.USAGE)
    assert "payload of signal 'reading'" in problem
    TROUBLE["ship"] = "ask"
    stuck = fleet.run(final, Order(number=1))
    problem = refused("resolve", stuck, "--result", "7", *WHY, "--app", shop, code=Exit.USAGE)
    assert "result of step 'ship'" in problem
    assert "name your app" in refused("fork", stuck, *WHY)
    assert said("fork", stuck, *WHY, "--app", shop)["phase"] == "past-pivot"


def test_checking_what_is_in_flight(fleet, shop):
    assert "nothing is in flight" in fine("check", shop, "--in-flight")
    fleet.run(asked, Order(number=1))
    assert said("check", shop, "--in-flight")["ok"] is True
    parked(fleet)
    fleet.start(orders, Order(number=2))
    found = run("check", shop, "--in-flight")
    assert found.exit_code == Exit.FOUND, found.output
    shown = " ".join(found.stdout.split())
    assert f"2 executions of order {orders.version} are in flight, the oldest for" in shown
    assert "1 active, 1 parked" in shown
    assert f"or: fencepost repin {shop} order --dry-run --why '...'" in shown
    as_json = json.loads(run("check", shop, "--in-flight", "--json").stdout)
    assert [one["known"] for one in as_json["in_flight"]] == [True, False]
    assert run("check", shop, "other:app", "--in-flight").exit_code == Exit.USAGE


def test_repinning(fleet, shop, monkeypatch):
    monkeypatch.setattr(upkeep, "EVERY", 0.0)
    begun = fleet.start(orders, Order(number=1))
    stuck = parked(fleet)
    fleet.run(asked, Order(number=1))
    TROUBLE["thank"] = "ask"
    done = fleet.run(orders, Order(number=2))
    dry = run("repin", shop, "order", *WHY, "--dry-run")
    assert dry.exit_code == Exit.FOUND
    assert "2 executions of order can go on in version" in dry.stdout
    assert fleet.row(stuck).version == orders.version
    begun_first = run("repin", shop, "order", *WHY)
    assert begun_first.exit_code == Exit.FOUND, begun_first.output
    assert f"2 executions of order go on in version {longer.version}" in begun_first.stdout
    assert f"{done} (parked, {orders.version}): nothing would be left to do" in begun_first.stdout
    assert "... 3 executions" in begun_first.stderr
    assert fleet.row(begun).version == fleet.row(stuck).version == longer.version
    again = json.loads(run("repin", shop, "order", *WHY, "--json").stdout)
    assert (again["moved"], [one["execution_id"] for one in again["left"]]) == ([], [str(done)])
    assert fine("repin", shop, "asked", *WHY).startswith("0 executions of asked go on")
    assert "[saga.unknown]" in refused("repin", shop, "ordre", *WHY)


# -- prune ---------------------------------------------------------------------------------


def test_pruning(fleet, monkeypatch):
    monkeypatch.setattr(upkeep, "EVERY", 0.0)
    old, young = (fleet.run(orders, Order(number=number)) for number in (1, 2))
    with fleet.database.begin() as connection:
        connection.execute(
            sa.update(executions)
            .where(executions.c.execution_id == old)
            .values(ended_at=fleet.row(old).ended_at - timedelta(days=91))
        )
    counted = run("prune", "--older-than", "90d", "--dry-run", *WHY)
    assert "1 runs that had ended before" in counted.stdout
    assert "would be deleted" in counted.stdout
    assert fleet.store.get(old) is not None
    pruned = run("prune", "--older-than", "90d", "--status", "succeeded", *WHY, "--by", "ada")
    assert pruned.exit_code == Exit.OK, pruned.output
    assert "1 runs that had ended before" in pruned.stdout
    assert "rows: 1 executions, 5 checkpoints" in pruned.stdout
    assert "... 1 runs" in pruned.stderr
    assert fleet.store.get(old) is None
    assert fleet.row(young).status is Status.SUCCEEDED
    assert said("prune", "--older-than", "1h", *WHY)["runs"] == 0
    trail = fine("events", pruning.EVERYTHING)
    assert "executions.pruned" in trail
    assert "by=ada" in trail


@pytest.mark.parametrize(
    "arguments",
    [
        ("--older-than", "90"),
        ("--older-than", "soon"),
        ("--older-than", "90d", "--status", "parked"),
        (),
    ],
)
def test_wrong_ages_and_ends(fleet, arguments):
    refused("prune", *arguments, *WHY, code=Exit.USAGE)


@pytest.mark.parametrize(
    "command",
    [
        ("cancel",),
        ("pause",),
        ("resume",),
        ("retry",),
        ("skip",),
        ("fork",),
        ("resolve", "--result", "1"),
        ("approve", "manager"),
        ("reject", "manager"),
    ],
)
def test_what_is_not_there_and_what_is_not_explained(fleet, command):
    name, *rest = command
    for wrong in (NO_ID, "no-id"):
        assert "[execution.not-found]" in refused(name, wrong, *rest, *WHY, code=Exit.USAGE)
    assert "say why" in refused(name, NO_ID, *rest, "--why", " ", code=Exit.USAGE)
    assert "--why" in refused(name, NO_ID, *rest, code=Exit.USAGE)
