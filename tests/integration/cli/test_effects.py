"""Effects in doubt, as people see them and decide about them."""

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
from pydantic import BaseModel
from typer.testing import CliRunner

from fencepost import EffectCall, EffectKind, Saga, Status, StepContext, effect, step
from fencepost.cli.app import app
from fencepost.cli.exits import Exit
from fencepost.cli.output import age
from fencepost.records import EventName
from tests.support.inline import Inline


class Refund(BaseModel):
    order: int
    cents: int = 999
    note: str = ""


class Receipt(BaseModel):
    number: int


TROUBLE = {1: True}


@effect(kind=EffectKind.AT_MOST_ONCE, sink="payments")
def pay_back(call: EffectCall, request: Refund) -> Receipt:
    if TROUBLE.get(request.order):
        raise TimeoutError("no answer after 30 s")
    return Receipt(number=request.order)


@effect(kind=EffectKind.AT_MOST_ONCE, sink="mail")
def write(call: EffectCall, request: Refund) -> None: ...


@step(effects=[pay_back, write])
def refund(ctx: StepContext, request: Refund) -> Receipt:
    ctx.perform(write, request, key=f"mail:{request.order}")
    return ctx.perform(pay_back, request, key=f"order:{request.order}")


@step
def thank(receipt: Receipt) -> int:
    return receipt.number


refunds = Saga("refunds", input=Refund).then(refund).then(thank)


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inline]:
    url: str = request.getfixturevalue(f"{request.param}_url")
    monkeypatch.setenv("FENCEPOST_DATABASE_URL", url)
    TROUBLE.clear()
    TROUBLE[1] = True
    fleet = Inline(url, [refunds])
    yield fleet
    fleet.close()


@pytest.fixture
def parked(fleet: Inline) -> UUID:
    execution_id = fleet.run(refunds, Refund(order=1, note="x" * 100))
    assert fleet.row(execution_id).status is Status.PARKED
    return execution_id


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def said(*arguments: object) -> Any:
    told = run(*arguments, "--json")
    assert told.exit_code == Exit.OK, told.output
    return json.loads(told.stdout)


def test_where_nothing_is_in_doubt_that_is_said(fleet):
    assert "no effect waits for a person" in run("effects").stdout
    assert said("effects") == []
    done = fleet.run(refunds, Refund(order=2))
    assert "has no effects in doubt" in run("effects", done, "--in-doubt").stdout


def test_what_waits_for_a_person_is_listed(fleet, parked):
    fleet.run(refunds, Refund(order=2))
    told = run("effects")
    assert told.exit_code == Exit.OK
    for part in ("payments", "order:1", "pay_back (at-most-once)", "in-doubt", str(parked)):
        assert part in told.stdout
    assert "characters)" in told.stdout
    assert f"next: fencepost effects {parked}" in told.stdout
    assert "mail:1" not in told.stdout
    (listed,) = said("effects")
    assert (listed["sink"], listed["key"], listed["calls"]) == ("payments", "order:1", 1)
    assert listed["request"]["note"] == "x" * 100
    assert listed["since_last_call"] >= 0
    assert [e["key"] for e in said("effects", "--in-doubt")] == ["order:1"]


def test_one_executions_effects_are_shown_with_all_that_is_known(fleet, parked):
    told = run("effects", parked).stdout
    assert "mail:1" in told
    assert f'"note": "{"x" * 100}"' in told
    assert "no answer after 30 s [step.raised]" in told
    assert "fencepost resolve payments order:1 --landed '...' --why '...'" in told
    assert [e["key"] for e in said("effects", parked)] == ["mail:1", "order:1"]
    assert [e["key"] for e in said("effects", parked, "--in-doubt")] == ["order:1"]


def test_the_status_of_an_execution_leads_there(fleet, parked):
    assert f"next: fencepost effects {parked}" in run("status", parked).stdout


def test_a_decision_that_it_has_landed_lets_the_execution_go_on(fleet, parked):
    told = run("resolve", "payments", "order:1", "--landed", '{"number": 7}', "--why", "statement")
    assert told.exit_code == Exit.OK, told.output
    assert "order:1 at payments is confirmed" in told.stdout
    assert f"execution {parked} goes on" in told.stdout
    fleet.drain()
    row = fleet.row(parked)
    assert (row.status, row.result) == (Status.SUCCEEDED, 7)
    (event,) = fleet.events(parked, EventName.EFFECT_RESOLVED)
    assert event.details["by"] == getuser()
    assert event.details["why"] == "statement"
    (unparked,) = fleet.events(parked, EventName.UNPARKED)
    assert unparked.details["why"] == "pay_back is confirmed: statement"
    assert "decided   by" in run("effects", parked).stdout


def test_a_decision_that_it_has_not_landed_has_it_called_again(fleet, parked):
    TROUBLE.clear()
    decided = said(
        "resolve", "payments", "order:1", "--not-landed", "--why", "asked", "--by", "ada"
    )
    assert decided["effect"]["status"] == "not-landed"
    assert decided["effect"]["resolution"] == {"landed": False, "by": "ada", "why": "asked"}
    assert decided["execution"]["status"] == "active"
    assert decided["left"] == []
    fleet.drain()
    assert fleet.row(parked).result == 1


def test_an_execution_stays_parked_while_something_else_is_in_doubt(fleet, parked):
    with fleet.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE fencepost_effects SET status = 'in-doubt' WHERE sink = 'mail'"
        )
    told = run("resolve", "payments", "order:1", "--not-landed", "--why", "asked")
    assert told.exit_code == Exit.OK
    assert "stays parked" in told.stdout
    assert "mail:1 at mail" in told.stdout
    assert fleet.row(parked).status is Status.PARKED
    TROUBLE.clear()
    run("resolve", "mail", "mail:1", "--landed", "null", "--why", "it is in the outbox")
    fleet.drain()
    assert fleet.row(parked).status is Status.SUCCEEDED


def test_a_second_decision_is_refused_and_names_the_first(fleet, parked):
    said("resolve", "payments", "order:1", "--not-landed", "--why", "asked", "--by", "ada")
    told = run("resolve", "payments", "order:1", "--landed", "{}", "--why", "no, it has")
    assert told.exit_code == Exit.FOUND
    assert "ada decided already (asked)" in told.stderr
    assert "[execution.wrong-state]" in told.stderr
    assert f"fencepost status {parked}" in told.stderr


def test_an_effect_that_is_not_there(fleet):
    told = run("resolve", "payments", "nothing", "--not-landed", "--why", "x")
    assert told.exit_code == Exit.USAGE
    assert "[effect.not-found]" in told.stderr
    assert "next:  fencepost effects" in told.stderr
    assert run("effects", "12345678-1234-5678-1234-567812345678").exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give --landed RESULT or --not-landed"),
        (["--landed", "1", "--not-landed"], "give --landed RESULT or --not-landed"),
        (["--landed", "r_42"], "needs its quotes"),
        (["--landed", ""], "not JSON"),
    ],
)
def test_a_command_line_that_decides_nothing(fleet, parked, arguments, told):
    shown = run("resolve", "payments", "order:1", "--why", "x", *arguments)
    assert shown.exit_code == Exit.USAGE
    assert told in " ".join(shown.stderr.replace("│", " ").split())
    assert [e["key"] for e in said("effects")] == ["order:1"]


def test_a_decision_has_its_reason(fleet, parked):
    told = run("resolve", "payments", "order:1", "--not-landed", "--why", " ")
    assert told.exit_code == Exit.USAGE
    assert "say why" in told.stderr


def test_with_the_app_at_hand_a_result_is_held_to_its_type(
    fleet, parked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "refund_shop.py").write_text(
        textwrap.dedent(
            """
            import fencepost
            from celery import Celery
            from tests.integration.cli.test_effects import refunds

            app = Celery("shop", broker="redis://127.0.0.1:1/0")
            fencepost.install(app, sagas=[refunds], database_url="sqlite:///unused.db")
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ("resolve", "payments", "order:1", "--why", "x", "--app", "refund_shop:app")
    told = run(*command, "--landed", '{"nummer": 7}')
    assert told.exit_code == Exit.USAGE
    assert "number: Field required" in told.stderr
    assert [e["key"] for e in said("effects")] == ["order:1"]
    assert said(*command, "--landed", '{"number": 7}')["effect"]["result"] == {"number": 7}
    sys.modules.pop("refund_shop", None)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0s"), (59, "59s"), (61, "1m 1s"), (7_200, "2h 0m"), (90_061, "1d 1h"), (-3, "0s")],
)
def test_ages_are_told_as_people_say_them(seconds, told):
    assert age(timedelta(seconds=seconds)) == told
