"""The coordinator as its users run it: a program, with its output and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "release" / "release.toml"
SECONDS = 150


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    exit_code: int
    out: str
    err: str

    @cached_property
    def json(self) -> Any:
        return json.loads(self.out)


def environment(**more: str) -> dict[str, str]:
    """This process's environment without any settings of the factory's."""
    ours = ("FENCEPOST_", "FACTORY_", "OPENAI_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return kept | {"COLUMNS": "120"} | more


def coordinator(*arguments: str | Path, **env: str) -> Done:
    """Run `python -m coordinator` to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "coordinator", *map(str, arguments)],
        cwd=ROOT,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def only_folder(runs: Path) -> Path:
    """The folder of the only run that was made there."""
    (folder,) = runs.iterdir()
    return folder


def broken(report: Any) -> list[int]:
    """Numbers of the invariants that a report calls violated."""
    return [line["number"] for line in report["invariants"] if line["verdict"] == "violated"]
