"""`make refund-demo`, cut short: real workers, real providers, and the counts of their ledgers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import ROOT
from tests.support.leftovers import left_by
from tests.support.waiting import wait_for

DEMO = [sys.executable, "-m", "examples.refund_agent.demo"]
PLAYED = ("frozen-before", "answer-lost", "duplicate", "other-amount")
DEMO_SECONDS = 170


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The demonstration's report; it has ended well, and left nothing running."""
    runs = tmp_path_factory.mktemp("runs")
    windows = [argument for name in PLAYED for argument in ("--window", name)]
    done = subprocess.run(
        [*DEMO, *windows, "--runs", str(runs)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no invariant broken" in done.stdout
    wait_for(lambda: not left_by(runs), 5, "everything to end")
    (report,) = runs.glob("*/report.json")
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def times(played: dict[str, Any], side: str) -> dict[str, dict[str, int]]:
    """Window → provider → times refunded."""
    found: dict[str, dict[str, int]] = {}
    for cell in played["cells"]:
        if cell["side"] == side:
            found.setdefault(cell["window"], {})[cell["mode"]] = cell["times"]
    return found


ONCE = {"dedupes": 1, "fences": 1, "queryable": 1, "blind": 1}


def test_plain_celery_refunds_twice_where_it_does(played: dict[str, Any]) -> None:
    assert times(played, "plain") == {
        # Asked before it was frozen, and sent after another copy had.
        "frozen-before": {**ONCE, "queryable": 2, "blind": 2},
        "answer-lost": ONCE,
        "duplicate": {**ONCE, "queryable": 2, "blind": 2},
        "other-amount": {**ONCE, "blind": 2},
    }
    said = {(c["window"], c["mode"]): c for c in played["cells"] if c["side"] == "plain"}
    assert said["answer-lost", "blind"]["state"] == "failed"
    # The first amount landed, the second was refused under the same key, and the customer is told
    # that there was no refund.
    for mode in ("dedupes", "fences"):
        assert said["other-amount", mode]["misinformed"]
        assert said["other-amount", mode]["refused"] == ["key-conflict"]


def test_fencepost_never_does(played: dict[str, Any]) -> None:
    assert times(played, "fencepost") == dict.fromkeys(PLAYED, ONCE)
    for cell in played["cells"]:
        if cell["side"] != "fencepost":
            continue
        parks = cell["mode"] == "blind" and cell["window"] != "duplicate"
        assert cell["state"] == ("parked" if parks else "succeeded"), cell
        assert not cell["misinformed"]
        # What a person decided, by the provider's statement.
        assert (cell["settled"] is not None) == parks
        assert len(cell["settled"] or [1]) == 1
        # One answer of the model for each turn: what is on record isn't asked again.
        assert cell["model_calls"] == (2 if parks else 3)
    frozen = [c for c in played["cells"] if (c["window"], c["side"]) == (PLAYED[0], "fencepost")]
    assert {c["mode"]: c["refused"] for c in frozen}["fences"] == ["stale-token"]


def test_the_verifier_found_nothing(played: dict[str, Any]) -> None:
    assert played["verifier"]["ok"]
    assert played["verifier"]["executions"] == {"succeeded": 4 * len(PLAYED)}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--window", "nonsense"], "no window nonsense; there are: smooth"),
        (["--mode", "nonsense"], "'nonsense' is not one of"),
        (["--live"], "--live needs OPENAI_API_KEY"),
    ],
)
def test_bad_arguments_are_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    done = subprocess.run(
        [*DEMO, *arguments, "--runs", str(tmp_path / "runs")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "runs").exists()
