"""Looks at a run while it goes on, and says at once what can't be undone any more."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator

from sqlalchemy import exc

from tests.chaos.checker import Finding, twice
from tests.chaos.facts import Reader

EVERY = 0.7
"""Seconds between two looks."""


class Watch:
    """Looks for effects that have happened twice, and for owners that have come back.

    Args:
        reader: What it asks.

    Attributes:
        found: What is wrong, once something is.
        open: How many executions hadn't ended when it last could look.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._epochs: dict[str, tuple[int, int]] = {}
        self._checkpoints: dict[str, tuple[str, int, str]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.wrong = threading.Event()
        self.found: list[Finding] = []
        self.open = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(EVERY):
            try:
                found = self.look()
            except (exc.SQLAlchemyError, sqlite3.Error):
                continue  # the database is down: that is part of the chaos
            except Exception as problem:  # noqa: BLE001 - a watch that has died sees nothing
                found = [Finding("watch", f"the watch itself failed: {problem!r}")]
            if found:
                self.found = found
                self.wrong.set()
                return

    def look(self) -> list[Finding]:
        """What is wrong now."""
        self.open = self._reader.unsettled()
        found = list(twice(self._reader.rows()))
        now = self._reader.epochs()
        for execution_id, (epoch, length) in now.items():
            before, length_before = self._epochs.get(execution_id, (0, 0))
            if epoch < before:
                found.append(
                    Finding(
                        "zombie",
                        f"execution {execution_id} went back from epoch {before} to {epoch}: a"
                        " worker that had lost it has written",
                    )
                )
            if length < length_before:
                found.append(Finding("shorter", f"the chain of {execution_id} has lost its end"))
        self._epochs = now
        found += [Finding("stale", words) for words in self._reader.stale_checkpoints()]
        found += self._overwritten()
        return found

    def _overwritten(self) -> Iterator[Finding]:
        """Checkpoints that aren't what they were: nothing may ever change one."""
        now = self._reader.newest_checkpoints()
        for checkpoint_id, (step_key, epoch, owner) in now.items():
            before = self._checkpoints.get(checkpoint_id)
            if before is not None and before != (step_key, epoch, owner):
                yield Finding(
                    "overwritten",
                    f"{step_key} was committed by {before[2]} with epoch {before[1]}, and then"
                    f" again by {owner} with epoch {epoch}",
                )
        self._checkpoints = now
