"""tools/venv.py: which Python it takes, and when it has to install."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, working on a small project of its own."""
    spec = importlib.util.spec_from_file_location("venv_tool", ROOT / "tools" / "venv.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "requirements").mkdir()
    for name in ("demo", "dev"):
        (tmp_path / "requirements" / f"{name}.txt").write_text("celery==5.7.0\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.x]\ny = 1\n')
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


@pytest.fixture
def installs(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What pip would have been asked for."""
    asked: list[str] = []
    monkeypatch.setattr(tool, "pip", lambda _venv, what, *_: asked.append(what))
    monkeypatch.setattr(tool, "make_environment", lambda venv: venv.mkdir(exist_ok=True))
    monkeypatch.setattr(tool, "version_of", lambda _python: sys.version_info[:2])
    return asked


def bring_up(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(sys, "argv", ["venv.py", what, "--venv", str(tool.ROOT / ".venv")])
    tool.main()


def test_an_old_python_is_refused_with_the_remedy(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    monkeypatch.setattr(tool.shutil, "which", lambda _name: None)
    with pytest.raises(SystemExit) as ended:
        tool.require_capable_python()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "Python 3.11 or newer is needed" in said
    assert "is 3.9" in said
    assert "make PYTHON=" in said


def test_a_newer_python_beside_an_old_one_takes_over(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    monkeypatch.setattr(tool.shutil, "which", lambda name: f"/opt/{name}")
    # The first one found is a shim without a Python behind it.
    monkeypatch.setattr(
        tool, "version_of", lambda path: (3, 13) if path == "/opt/python3.13" else None
    )
    started: list[str] = []

    def execv(path: str, _arguments: list[str]) -> None:
        started.append(path)
        raise SystemExit

    monkeypatch.setattr(tool.os, "execv", execv)
    with pytest.raises(SystemExit):
        tool.require_capable_python()
    assert started == ["/opt/python3.13"]


def test_a_python_that_makes_no_environments_is_refused(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "version_of", lambda _path: None)
    with pytest.raises(SystemExit):
        tool.require_capable_python()
    assert "-venv" in capsys.readouterr().err


@pytest.mark.parametrize("order", [["demo", "dev"], ["dev", "demo"]])
def test_demo_and_test_can_run_in_either_order(
    tool: ModuleType, installs: list[str], monkeypatch: pytest.MonkeyPatch, order: list[str]
) -> None:
    for what in [*order, *order]:
        bring_up(tool, monkeypatch, what)
    requirements = [what for what in installs if what.startswith("requirements")]
    # The dev set holds the demo set, so that after it nothing is left to do.
    expected = ["demo", "dev"] if order[0] == "demo" else ["dev"]
    assert requirements == [f"requirements/{name}.txt" for name in expected]


def test_a_changed_pin_in_any_set_makes_every_set_stale(
    tool: ModuleType, installs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_up(tool, monkeypatch, "dev")
    (tool.ROOT / "requirements" / "demo.txt").write_text("celery==5.7.1\n")
    installs.clear()
    bring_up(tool, monkeypatch, "dev")
    assert installs[0] == "requirements/dev.txt"


def test_a_changed_linter_setting_installs_nothing(
    tool: ModuleType, installs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_up(tool, monkeypatch, "dev")
    installs.clear()
    (tool.ROOT / "pyproject.toml").write_text('[project]\nname = "x"\n')
    bring_up(tool, monkeypatch, "dev")
    assert installs == []


def test_a_failed_installation_is_not_taken_for_a_finished_one(
    tool: ModuleType, installs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_up(tool, monkeypatch, "demo")
    stamp = tool.ROOT / ".venv" / ".fencepost-stamp"
    assert json.loads(stamp.read_text())["sets"] == ["demo"]

    def broken(_venv: Path, what: str, *_: str) -> None:
        raise SystemExit(what)

    monkeypatch.setattr(tool, "pip", broken)
    with pytest.raises(SystemExit):
        bring_up(tool, monkeypatch, "dev")
    assert not stamp.exists()


def test_the_demo_set_is_part_of_the_dev_set_at_the_same_pins() -> None:
    def pins(name: str) -> set[str]:
        lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
        return {line.split()[0] for line in lines if "==" in line and not line.startswith("#")}

    assert pins("run") <= pins("demo") <= pins("dev")


def test_the_locks_carry_hashes_and_name_no_index() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text
        assert "--find-links" not in text
