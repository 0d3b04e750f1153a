"""One demo for all tests that look at a finished run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.factory.program import Done, coordinator, only_folder


@dataclass(frozen=True)
class FinishedRun:
    """A run of `demo`, and what it left."""

    done: Done
    folder: Path

    @property
    def report(self) -> Any:
        return self.done.json


@pytest.fixture(scope="session")
def finished_demo(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """The demo on SQLite, with the report on standard output and the story on standard error."""
    runs = tmp_path_factory.mktemp("demo") / "runs"
    done = coordinator("demo", "--json", "--runs", runs)
    assert done.exit_code == 0, done.err + done.out
    return FinishedRun(done, only_folder(runs))
