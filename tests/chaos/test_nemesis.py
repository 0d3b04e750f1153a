"""The nemesis on real workers and servers: a fixed seed, a fresh one, SQLite, and no fence."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FIXED = 5
UNFENCED_WITHIN = 60.0
"""Seconds of the nemesis."""


class Chaos:
    """A run in a process of its own.

    Args:
        folder: For what it keeps and says.
        given: Its arguments.
    """

    def __init__(self, folder: Path, *given: str) -> None:
        folder.mkdir()
        self._folder = folder
        self._told = (folder / "told.txt").open("w")
        self._said = (folder / "result.json").open("w")
        keep = ["--json", "--keep", str(folder / "run")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos", *given, *keep],
            cwd=ROOT,
            stdout=self._said,
            stderr=self._told,
        )

    def end(self, timeout: float) -> tuple[int, dict[str, Any]]:
        """Wait for its end; returns the exit code and the result."""
        try:
            code = self._process.wait(timeout)
        finally:
            self.stop()
        told = (self._folder / "told.txt").read_text()
        print(told)
        said = (self._folder / "result.json").read_text()
        assert said, f"no result, exit code {code}"
        result: dict[str, Any] = json.loads(said)
        print(json.dumps(result, indent=2))
        return code, result

    def stop(self) -> None:
        """End it, servers and workers too."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)
        self._told.close()
        self._said.close()

    def history(self) -> list[dict[str, Any]]:
        """What it has written down."""
        lines = (self._folder / "run" / "history.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Any]:
    """Starts runs, and leaves none of them running."""
    runs: list[Chaos] = []

    def start(*given: str) -> Chaos:
        runs.append(Chaos(tmp_path / f"run{len(runs)}", *given))
        return runs[-1]

    yield start
    for run in runs:
        run.stop()


def _all_is_well(code: int, result: dict[str, Any]) -> None:
    figures = result["figures"]
    assert result["findings"] == []
    assert (code, result["ok"]) == (0, True), result
    # It has seen something: otherwise there was nothing to judge.
    assert figures["started"] >= 10
    assert sum(figures["actions"].values()) >= 10
    assert figures["takeovers"] >= 1
    assert figures["effects at the sinks"] >= figures["started"]


@pytest.mark.timeout(1800)
def test_a_fixed_and_a_fresh_seed_on_postgresql(chaos: Any) -> None:
    fresh = secrets.randbelow(1_000_000)
    print(f"fresh seed: {fresh}")
    runs = [chaos("--minutes", "3", "--seed", str(seed)) for seed in (FIXED, fresh)]
    for run in runs:
        code, result = run.end(1700)
        _all_is_well(code, result)
        kinds = result["figures"]["actions"].keys()
        assert len(kinds) >= 15, kinds


@pytest.mark.timeout(1200)
def test_a_short_run_on_sqlite(chaos: Any) -> None:
    code, result = chaos("--minutes", "0.7", "--seed", "11", "--database", "sqlite").end(1100)
    _all_is_well(code, result)


@pytest.mark.timeout(400)
def test_without_the_fence_it_fails_within_a_minute_and_says_why(chaos: Any) -> None:
    run = chaos("--minutes", "1", "--seed", "1", "--unfenced")
    code, result = run.end(300)
    assert (code, result["ok"]) == (1, False)
    codes = {finding["code"] for finding in result["findings"]}
    # What it was stopped for, and not what is merely unfinished because it was stopped.
    assert codes
    assert codes <= {"twice", "zombie", "stale", "overwritten", "shorter"}
    began, stopped = (
        next(line["at"] for line in run.history() if start in line["name"])
        for start in ("workers are up", "something is wrong")
    )
    assert stopped - began <= UNFENCED_WITHIN
    assert "--unfenced" in result["command"]
