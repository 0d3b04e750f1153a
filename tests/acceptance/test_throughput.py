"""The benchmark runs without an error and prints both numbers; how great they are is its matter."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.fleet import ROOT

RUNS = 100


def test_the_benchmark_prints_both_numbers() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.throughput", "--executions", str(RUNS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    lines = re.findall(r"^(.+?) +(\d+) runs +(\d+) errors .* ([\d.]+) runs/s", done.stdout, re.M)
    assert [(who, runs, errors) for who, runs, errors, _ in lines] == [
        ("Fencepost, saga of three steps", str(RUNS), "0"),
        ("plain Celery, chain of three tasks", str(RUNS), "0"),
    ]
    assert all(float(rate) > 0 for *_, rate in lines)
