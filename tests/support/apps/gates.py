"""Gates: files that a test makes and removes, to hold steps up or to have them fail."""

from __future__ import annotations

import os
import time
from pathlib import Path

ENVIRONMENT = "SAMPLE_GATES"

POLL_SECONDS = 0.01


class Gates:
    """The test's side.

    Args:
        folder: Where the closed ones are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def shut(self, *names: str) -> None:
        """Close them."""
        for name in names:
            (self.folder / name).touch()

    def open(self, *names: str) -> None:
        """Open them; all that are closed, if none is named."""
        for name in names or [path.name for path in self.folder.iterdir()]:
            (self.folder / name).unlink(missing_ok=True)

    def closed(self) -> set[str]:
        """The names of those that are."""
        return {path.name for path in self.folder.iterdir()}


def is_shut(name: str) -> bool:
    """A step's side: whether it may not pass."""
    return (Path(os.environ[ENVIRONMENT]) / name).exists()


def wait_at(name: str) -> None:
    """A step's side: wait until the gate is open."""
    while is_shut(name):
        time.sleep(POLL_SECONDS)
