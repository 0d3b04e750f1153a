"""The history of a run: one JSON line for all that was done, and how it was answered."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One line.

    Attributes:
        at: Seconds since the run began.
        what: `start`, `started`, `action`, `worker`, `phase`, ...
        name: Which of that kind.
        target: Whom it concerned.
        answer: How it went.
        facts: Further values.
    """

    at: float
    what: str
    name: str
    target: str = ""
    answer: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


class History:
    """Appends lines to a file, from any thread.

    Args:
        path: The file; None to keep no file.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._file = path.open("a") if path is not None else None

    def add(
        self, what: str, name: str, *, target: str = "", answer: str = "", **facts: Any
    ) -> Entry:
        """Write a line."""
        entry = Entry(self.now(), what, name, target, answer, facts)
        with self._lock:
            self._entries.append(entry)
            if self._file is not None:
                self._file.write(json.dumps(vars(entry), default=str) + "\n")
                self._file.flush()
        return entry

    def now(self) -> float:
        """Seconds since the run began."""
        return round(time.monotonic() - self._began, 3)

    def entries(self, what: str | None = None) -> list[Entry]:
        """The lines so far, of one kind or all."""
        with self._lock:
            return [entry for entry in self._entries if what in (None, entry.what)]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def read(path: Path) -> Iterator[Entry]:
    """The lines of a history that was written earlier."""
    with path.open() as file:
        for line in file:
            yield Entry(**json.loads(line))
