from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coordinator.cli import main
from coordinator.cli.exits import code_for
from fencepost.errors import (
    ConfigurationError,
    ExecutionNotFoundError,
    FencepostError,
    SchemaError,
    ServiceUnavailableError,
)
from fencepost.testing import ServerError

EXAMPLE = Path(__file__).parents[3] / "examples" / "release" / "release.toml"
SOME_ID = "00000000-0000-0000-0000-000000000001"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["coordinator", *arguments])
    try:
        return main()
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ("migrate",),
        ("release", str(EXAMPLE)),
        ("status",),
        ("status", SOME_ID),
        ("verify", SOME_ID),
        ("sweep",),
        ("scenario", "kill"),
    ],
    ids=" ".join,
)
def test_without_settings_every_command_says_what_to_type(
    arguments: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *arguments) == 78
    said = capsys.readouterr()
    assert said.out == ""
    assert "config.missing" in said.err
    assert "export FENCEPOST_DATABASE_URL=" in said.err
    assert list(tmp_path.iterdir()) == []


def test_all_errors_of_a_release_file_are_told_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "release.toml"
    file.write_text('[release]\nname = "a b"\nflags = ["nonsense"]\n')
    assert run(monkeypatch, "release", str(file)) == 65
    said = capsys.readouterr().err
    for field in ("release.name", "release.version", "release.flags[0]", "gate", "module"):
        assert field in said


def test_a_run_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "verify", "no-such-run", "--runs", str(tmp_path)) == 66
    assert "no-such-run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("demo", "--live"), (78, "OPENAI_API_KEY")),
        (("demo", "--model", "gpt-x"), (2, "--live")),
        (("demo", "--unfenced", "--broker-url", "redis://h/0"), (78, "--broker-url")),
        (("scenario", "explode"), (2, "freeze")),
        (("scenario", "kill", "--embedded", "--lease-ttl", "0"), (2, "--lease-ttl")),
        (("scenario", "kill", "--embedded", "--file", "no-such.toml"), (65, "no-such.toml")),
    ],
)
def test_a_show_that_can_not_be_given_starts_nothing(
    arguments: tuple[str, ...],
    expected: tuple[int, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run(monkeypatch, *arguments)
    assert code == expected[0]
    assert expected[1] in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_live_planner_needs_a_model_name_at_a_server_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    assert run(monkeypatch, "demo", "--live", "--base-url", "https://models.example/v1") == 78
    said = capsys.readouterr().err
    assert "FACTORY_PLANNER_MODEL" in said
    assert "sk-test" not in said


@pytest.mark.parametrize("arguments", [("--help",), ("demo", "--help"), ("scenario", "--help")])
def test_help_needs_nothing(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *arguments) == 0
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (ServiceUnavailableError("x"), 69),
        (ServerError("x"), 69),
        (ConfigurationError("x"), 78),
        (SchemaError("x"), 78),
        (ExecutionNotFoundError("x"), 66),
        (FencepostError("x"), 1),
    ],
)
def test_exit_codes_tell_what_kind_of_thing_is_wrong(problem: FencepostError, code: int) -> None:
    assert code_for(problem) == code
