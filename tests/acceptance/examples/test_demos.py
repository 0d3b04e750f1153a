"""`make order-demo` and `make pipeline-demo`, on both databases: what they count is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fleet import ROOT
from tests.support.leftovers import left_by
from tests.support.waiting import wait_for

DEMO_SECONDS = 170

pytestmark = pytest.mark.slow


def play(name: str, runs: Path, *options: str) -> str:
    """Run a demonstration; it has ended well, and has left nothing running."""
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}.demo", *options, "--runs", str(runs)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no invariant broken" in done.stdout
    wait_for(lambda: not left_by(runs), 5, "everything to end")
    return done.stdout


DATABASES = pytest.mark.parametrize("options", [(), ("--postgres",)], ids=["sqlite", "postgres"])


@DATABASES
def test_orders_end_as_they_should(tmp_path: Path, options: tuple[str, ...]) -> None:
    said = play("order_saga", tmp_path, *options)
    assert said.count("✓") == 4
    assert "✗" not in said
    # A reminder, and then it arrived.
    assert re.search(r"order-1: freight-0001, taken by the neighbour, \d+ reminder", said)
    assert "compensated: order-2: not charged" in said
    assert "compensated: cancelled by dana" in said
    assert "succeeded: order-4" in said


@DATABASES
def test_every_row_is_loaded_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    said = play("data_pipeline", tmp_path, *options)
    assert said.count("✓") == 3
    assert "✗" not in said
    assert said.count("270 rows published, 270 stored") == 2
    assert "240 rows published, 240 stored, 1 partition(s) could not be loaded" in said
