"""`fencepost check` and `fencepost describe` on modules of all kinds."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from kombu import Queue
from typer.testing import CliRunner

from fencepost.celery import check_queues, declared_queues, served_queues, usual_queue
from fencepost.cli.app import app
from fencepost.cli.exits import Exit
from fencepost.cli.sarif import ALL_RULES
from fencepost.errors import SagaDefinitionError
from fencepost.saga import Saga, step
from tests.docs.pages import DOCS, anchors_of

SAGAS = """
from fencepost import Saga, TaskContext, step, task


@step
def double(number: int) -> int:
    return number * 2


@step
def shout(text: str) -> str:
    return text.upper()


@step(queue="gpu")
def draw(number: int) -> str:
    return str(number)


@task
def tidy(ctx: TaskContext, number: int) -> int:
    return number


right = Saga("right", input=int).then(double)
part = Saga("part", input=int).then(shout)
wrong = Saga("wrong", input=int).child(part)
drawn = Saga("drawn", input=int).then(draw)
number = 7
"""

APP = """
from celery import Celery
from kombu import Queue
import fencepost
from {sagas} import {names}

app = Celery("shop", broker="redis://localhost/0", backend="redis://localhost/0")
{settings}
fp = fencepost.install(
    app, sagas=[{names}], database_url="sqlite:///never-opened.sqlite3", lease_ttl=5
)
"""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Writes a module into the folder that the program is started in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(sys.modules)

    def write(name: str, text: str) -> Path:
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        return file

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("checked_"):
            del sys.modules[name]


@pytest.fixture
def sagas(here: Callable[..., Path]) -> str:
    here("checked_sagas", SAGAS)
    return "checked_sagas"


def codes(told: Any) -> list[tuple[str, str]]:
    return [(one["code"], one["place"]) for one in json.loads(told.stdout)["findings"]]


def test_one_saga(sagas: str) -> None:
    assert run("check", f"{sagas}:right").exit_code == Exit.OK
    told = run("check", f"{sagas}:wrong")
    assert told.exit_code == Exit.FOUND
    assert told.stdout == (
        "error: part/shout: it takes str, and saga part gives int; make the two annotations agree"
        " [types.mismatch]\n1 errors, 0 warnings\n"
    )


def test_a_task_and_several_targets_at_once(sagas: str) -> None:
    assert run("check", f"{sagas}:tidy", f"{sagas}:right").stdout == "0 errors, 0 warnings\n"
    told = run("check", f"{sagas}:tidy", f"{sagas}:wrong", f"{sagas}:part", "--json")
    assert codes(told) == [("types.mismatch", "part/shout")]


def test_everything_in_a_module(sagas: str) -> None:
    told = run("check", sagas, "--json")
    assert codes(told) == [("types.mismatch", "part/shout")]
    assert told.exit_code == Exit.FOUND


def test_a_finding_says_where_it_is_written(sagas: str, tmp_path: Path) -> None:
    (finding,) = json.loads(run("check", f"{sagas}:wrong", "--json").stdout)["findings"]
    lines = SAGAS.splitlines()
    assert finding["file"] == str(tmp_path / "checked_sagas.py")
    assert "def shout" in lines[finding["line"]] or "@step" in lines[finding["line"] - 1]


def shop(here: Callable[..., Path], names: str = "right", settings: str = "") -> str:
    here("checked_app", APP.format(sagas="checked_sagas", names=names, settings=settings))
    return "checked_app"


@pytest.mark.parametrize("attribute", ["", ":app", ":fp"])
def test_an_apps_settings_and_all_that_it_registers(
    here: Callable[..., Path], sagas: str, attribute: str
) -> None:
    """What can't be registered is found too, and doesn't hide what else there is."""
    target = shop(here, "right, wrong", "app.conf.task_always_eager = True") + attribute
    assert codes(run("check", target, "--json")) == [
        ("settings.always-eager", "task_always_eager is True"),
        ("types.mismatch", "part/shout"),
    ]


def test_without_the_check_the_same_app_does_not_start(
    here: Callable[..., Path], sagas: str
) -> None:
    shop(here, "wrong")
    with pytest.raises(SagaDefinitionError, match=r"\[types\.mismatch\]"):
        importlib.import_module("checked_app")


QUEUES = "app.conf.task_queues = [Queue('celery')]; app.conf.task_create_missing_queues = {create}"


def test_queues_that_can_not_be_used(here: Callable[..., Path], sagas: str) -> None:
    target = shop(here, "drawn", QUEUES.format(create=False))
    assert codes(run("check", target, "--json")) == [("queue.not-served", "drawn/draw")]


def test_queues_that_can_be_made(here: Callable[..., Path], sagas: str) -> None:
    assert run("check", shop(here, "drawn", QUEUES.format(create=True))).exit_code == Exit.OK


def test_strict(here: Callable[..., Path], sagas: str) -> None:
    target = shop(here, settings="app.conf.task_acks_late = False")
    assert run("check", target).exit_code == Exit.OK
    told = run("check", target, "--strict", "--json")
    assert told.exit_code == Exit.FOUND
    assert json.loads(told.stdout)["ok"] is False


def test_live_needs_an_app(sagas: str) -> None:
    assert run("check", f"{sagas}:right", "--live").exit_code == Exit.USAGE


def test_live_and_nobody_there(here: Callable[..., Path], sagas: str) -> None:
    here("checked_app", APP.format(sagas=sagas, names="right", settings="").replace("/0", ":1/0"))
    told = run("check", "checked_app", "--live")
    assert told.exit_code == Exit.UNAVAILABLE
    assert "[service.unavailable]" in told.stderr


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("checked_sagas:number", "'number' is no Celery app or Fencepost, and no saga"),
        ("checked_sagas:missing", "'missing' is no Celery app or Fencepost, and no saga"),
        ("checked_none", "name one as checked_none:attribute"),
        ("checked_missing", "No module named 'checked_missing'"),
        ("checked_broken:saga", "ZeroDivisionError"),
    ],
)
def test_a_target_that_leads_nowhere(
    here: Callable[..., Path], sagas: str, target: str, words: str
) -> None:
    here("checked_none", "number = 7")
    here("checked_broken", "1 / 0")
    for command in ("check", "describe"):
        told = run(command, target)
        assert told.exit_code == Exit.USAGE
        assert words in told.stderr
        assert "[cli.app-not-found]" in told.stderr


# -- SARIF ---------------------------------------------------------------------------------


def test_sarif(here: Callable[..., Path], sagas: str, tmp_path: Path) -> None:
    target = shop(here, settings="app.conf.task_acks_late = False")
    told = run("check", f"{sagas}:wrong", target, "--sarif", "found.sarif")
    assert told.exit_code == Exit.FOUND
    assert "1 errors, 1 warnings" in told.stdout
    log = json.loads((tmp_path / "found.sarif").read_text())
    assert log["version"] == "2.1.0"
    (analysis,) = log["runs"]
    rules = analysis["tool"]["driver"]["rules"]
    for result in analysis["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
    places = [
        (
            result["level"],
            location["physicalLocation"]["artifactLocation"]["uri"],
            location["logicalLocations"][0]["fullyQualifiedName"],
        )
        for result in analysis["results"]
        for location in result["locations"]
    ]
    assert places == [
        ("error", "checked_sagas.py", "part/shout"),
        ("warning", "checked_app.py", "task_acks_late is False"),
    ]


def test_sarif_on_stdout_is_nothing_else(sagas: str) -> None:
    told = run("check", f"{sagas}:right", "--sarif", "-")
    assert told.exit_code == Exit.OK
    assert json.loads(told.stdout)["runs"][0]["results"] == []


def test_every_rule_has_its_help_and_its_place_in_the_reference() -> None:
    anchors = anchors_of(DOCS / "reference" / "checks.md")
    assert {rule.anchor for rule in ALL_RULES} <= anchors


# -- queues --------------------------------------------------------------------------------


@step(queue="gpu")
def draw(number: int) -> str:
    return str(number)


@step
def look(text: str) -> str:
    return text


drawn = Saga("drawn", input=int).then(draw).then(look)


def test_what_running_workers_serve() -> None:
    celery = Celery("served", broker="memory://", backend="cache+memory://")
    celery.conf.task_queues = [Queue("celery"), Queue("gpu")]
    with start_worker(celery, pool="solo", perform_ping_check=False, shutdown_timeout=30):
        served = served_queues(celery)
    assert served == {"celery", "gpu"}
    assert check_queues([drawn], served, usual=usual_queue(celery)) == []
    found = check_queues([drawn], set(), usual=usual_queue(celery))
    assert [(one.code, one.place) for one in found] == [
        ("queue.not-served", "drawn/draw"),
        ("queue.not-served", "drawn/look"),
    ]


def test_an_app_that_names_no_queues_can_make_any() -> None:
    celery = Celery("free", broker="memory://")
    assert declared_queues(celery) is None
    assert usual_queue(celery) == "celery"


# -- describe ------------------------------------------------------------------------------


def test_describe(sagas: str) -> None:
    told = run("describe", f"{sagas}:right", f"{sagas}:tidy")
    assert told.exit_code == Exit.OK
    assert "saga right (version " in told.stdout
    assert "task tidy (version " in told.stdout
    shown = json.loads(run("describe", f"{sagas}:right", "--json").stdout)
    assert [one["name"] for one in shown] == ["right"]
    assert run("describe", f"{sagas}:right", "--mermaid").stdout.startswith("flowchart TD\n")
    assert run("describe", f"{sagas}:right", "--mermaid", "--json").exit_code == Exit.USAGE


def test_describe_shows_what_is_wrong_too(here: Callable[..., Path], sagas: str) -> None:
    assert "saga wrong" in run("describe", shop(here, "right, wrong")).stdout
