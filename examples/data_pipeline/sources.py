"""A stand-in for the sources' API: files in a folder, `<source>/<day>/<partition>/<page>.json`.

`PIPELINE_SOURCES` is the folder. A page's file is a list of rows; one that isn't JSON is corrupt. A
file `<page>.busy` makes the source say "try later", once. Every call is noted in `calls.jsonl`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from examples.data_pipeline.model import Cursor, Partition

CALLS = "calls.jsonl"
TAKES = 0.05
"""Seconds that the source takes for a page."""


class SourceBusy(Exception):
    """Try later."""


class CorruptPage(Exception):
    """The page can't be read, now or later."""


def _folder() -> Path:
    return Path(os.environ.get("PIPELINE_SOURCES", "sources"))


def partitions(day: date) -> list[Partition]:
    """What the sources have for a day."""
    found = sorted(_folder().glob(f"*/{day}/*"))
    return [
        Partition(day=day, source=path.parts[-3], number=int(path.name))
        for path in found
        if path.is_dir()
    ]


def fetch(cursor: Cursor) -> tuple[list[str], int | None]:
    """The rows of a page, and the number of the next one.

    Raises:
        SourceBusy: Try later.
        CorruptPage: It can't be read.
    """
    partition, page = cursor.partition, cursor.page or 0
    folder = _folder() / partition.source / str(partition.day) / str(partition.number)
    with _noted(partition, page):
        time.sleep(TAKES)
        busy = folder / f"{page}.busy"
        if busy.exists():
            busy.unlink()
            raise SourceBusy(f"{partition.source} is busy")
        try:
            rows: list[str] = json.loads((folder / f"{page}.json").read_text())
        except json.JSONDecodeError as problem:
            name = f"{partition.source}/{partition.number}"
            raise CorruptPage(f"page {page} of {name} can't be read") from problem
    following = page + 1
    return rows, following if (folder / f"{following}.json").exists() else None


@contextmanager
def _noted(partition: Partition, page: int) -> Iterator[None]:
    """Note a call's begin and end, for who wants to know how many there were at once."""
    call: dict[str, Any] = {"source": partition.source, "page": page, "pid": os.getpid()}
    began = time.time()
    try:
        yield
    finally:
        line = json.dumps(call | {"began": began, "ended": time.time()}) + "\n"
        with (_folder() / CALLS).open("a") as calls:
            calls.write(line)


def calls(folder: Path) -> list[dict[str, Any]]:
    """All calls that have ended, in a demonstration's folder."""
    path = folder / CALLS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
