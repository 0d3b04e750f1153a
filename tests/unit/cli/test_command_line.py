"""The command line without any server: help, usage, missing settings, the check of an app."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from typer.main import get_group
from typer.testing import CliRunner

from fencepost import __version__
from fencepost.cli.app import app
from fencepost.cli.exits import Exit

COMMANDS = tuple(get_group(app).commands)
VARIABLES = ("FENCEPOST_DATABASE_URL", "FENCEPOST_REDIS_URL", "FENCEPOST_BROKER_URL")
ID = "12345678-1234-5678-1234-567812345678"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_help_names_every_command_and_the_exit_codes():
    shown = run("--help")
    assert shown.exit_code == Exit.OK
    for command in COMMANDS:
        assert command in shown.stdout
    assert "69" in shown.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    shown = run(command, "--help")
    assert shown.exit_code == Exit.OK
    assert "--json" in shown.stdout
    assert "Exit codes" in shown.stdout


def test_the_version():
    assert run("--version").stdout.strip() == __version__


def test_help_is_fast_because_it_loads_nothing_that_it_does_not_show():
    code = (
        "import sys; from fencepost.cli.app import app; app(['--help'], standalone_mode=False);"
        "print(sorted({n.partition('.')[0] for n in sys.modules}), file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in shown.stdout
    for heavy in ("celery", "kombu", "redis", "sqlalchemy", "alembic", "pydantic"):
        assert f"'{heavy}'" not in shown.stderr


def test_python_m_works():
    command = [sys.executable, "-m", "fencepost", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == __version__


@pytest.mark.parametrize(
    "arguments",
    [
        ("migrate",),
        ("status",),
        ("status", ID),
        ("events", ID),
        ("verify", "--all"),
        ("retry", ID, "--why", "it is mended"),
        ("cancel", ID, "--why", "it is not wanted"),
        ("signal", ID, "paid"),
        ("prune", "--older-than", "90d", "--why", "it is old"),
    ],
)
def test_without_a_database_the_error_says_what_to_set(arguments):
    told = run(*arguments)
    assert told.exit_code == Exit.CONFIG
    assert "[config.invalid]" in told.stderr
    assert "FENCEPOST_DATABASE_URL" in told.stderr
    assert "Traceback" not in told.output
    assert told.stdout == ""


def test_an_error_is_json_where_json_is_wanted():
    told = run("status", "--json")
    error = json.loads(told.stderr)["error"]
    assert error["code"] == "config.invalid"
    assert error["next"].startswith("export FENCEPOST_DATABASE_URL=")
    assert told.exit_code == Exit.CONFIG


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify",),
        ("verify", ID, "--all"),
        ("verify", "--all", "--settle", "-1"),
        ("status", "--limit", "0"),
        ("status", "--status", "bogus", "--database-url", "sqlite:///x"),
        ("status", ID, "--saga", "release"),
        ("retry", ID),
        ("retry", ID, "--why", " ", "--database-url", "sqlite:///x"),
        ("events",),
        ("nonsense",),
    ],
)
def test_wrong_usage(arguments):
    assert run(*arguments).exit_code == Exit.USAGE


def test_a_mistyped_sqlite_file_is_not_made(tmp_path: Path):
    missing = tmp_path / "missing.sqlite3"
    for arguments in (("status",), ("verify", "--all"), ("events", ID)):
        told = run(*arguments, "--database-url", f"sqlite:///{missing}")
        assert told.exit_code in (Exit.CONFIG, Exit.UNAVAILABLE)
        assert str(missing) in told.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("status",), ("verify", "--all"), ("migrate",)])
def test_a_server_that_does_not_answer(command):
    told = run(*command, "--database-url", "postgresql://me:secret@127.0.0.1:1/db")
    assert told.exit_code == Exit.UNAVAILABLE
    assert "127.0.0.1:1/db" in told.stderr
    assert "[service.unavailable]" in told.stderr
    assert "secret" not in told.output


# -- check ---------------------------------------------------------------------------------

APP = """
from celery import Celery
import fencepost

app = Celery("shop", broker="redis://localhost/0", backend="redis://localhost/0")
{settings}
fp = fencepost.install(app, database_url="sqlite:///never-opened.sqlite3", lease_ttl=5)
other = Celery("other")
number = 7
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(settings: str = "", name: str = "shopapp") -> str:
        (tmp_path / f"{name}.py").write_text(APP.format(settings=settings))
        return name

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("shopapp"):
            del sys.modules[name]


@pytest.mark.parametrize("attribute", [":app", ":fp", ""])
def test_an_app_without_findings(shop, attribute):
    told = run("check", shop() + attribute)
    assert told.exit_code == Exit.OK, told.output
    assert told.stdout == "0 errors, 0 warnings\n"


def test_findings_that_break_the_protocol_fail_the_check(shop):
    broken = shop("app.conf.accept_content = ['pickle', 'json']; app.conf.task_acks_late = False")
    told = run("check", f"{broken}:app")
    assert told.exit_code == Exit.FOUND
    assert "[settings.unsafe-content]" in told.stdout
    assert "[settings.early-acks]" in told.stdout
    assert told.stdout.endswith("1 errors, 1 warnings\n")


def test_warnings_alone_do_not(shop):
    told = run("check", shop("app.conf.task_acks_late = False"), "--json")
    assert told.exit_code == Exit.OK
    said = json.loads(told.stdout)
    assert said["ok"] is True
    assert [finding["code"] for finding in said["findings"]] == ["settings.early-acks"]


def test_findings_as_json(shop):
    told = run("check", shop("app.conf.task_always_eager = True"), "--json")
    assert told.exit_code == Exit.FOUND
    said = json.loads(told.stdout)
    assert said["ok"] is False
    assert said["findings"][0]["severity"] == "error"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("shopapp:number", "'number' is no Celery app or Fencepost"),
        ("shopapp:missing", "'missing' is no Celery app or Fencepost"),
        ("no_such_module:app", "No module named 'no_such_module'"),
        ("shopapp_broken:app", "ZeroDivisionError"),
        ("shopapp_empty", "shopapp_empty:attribute"),
    ],
)
def test_an_argument_that_leads_nowhere(shop, tmp_path: Path, argument, words):
    shop()
    (tmp_path / "shopapp_broken.py").write_text("1 / 0")
    (tmp_path / "shopapp_empty.py").write_text("")
    told = run("check", argument)
    assert told.exit_code == Exit.USAGE
    assert words in told.stderr
    assert "[cli.app-not-found]" in told.stderr
    assert "Traceback" not in told.output


def test_an_app_on_which_fencepost_is_not_installed(shop):
    told = run("check", f"{shop()}:other")
    assert told.exit_code == Exit.CONFIG
    assert "fencepost.install(app, ...)" in told.stderr


def test_an_app_whose_settings_are_wrong(shop, tmp_path: Path):
    (tmp_path / "shopapp_unset.py").write_text(
        textwrap.dedent(
            """
            from celery import Celery
            import fencepost
            app = Celery("shop")
            fencepost.install(app)
            """
        )
    )
    told = run("check", "shopapp_unset:app")
    assert told.exit_code == Exit.CONFIG
    assert "FENCEPOST_DATABASE_URL" in told.stderr
