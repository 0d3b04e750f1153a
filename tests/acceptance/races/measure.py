"""Runs the races on Celery alone, with real workers, and counts in the providers' books.

`python -m tests.acceptance.races.measure` writes what it has seen into `measured.json`.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

import redis

from fencepost.testing import embedded_redis
from tests.acceptance.races import plain
from tests.acceptance.races.bank import Bank, Banks, open_banks
from tests.support.fleet import Fault, Fleet
from tests.support.waiting import wait_for

MEASURED = Path(__file__).with_name("measured.json")
END_SECONDS = 60.0
READY = {"SUCCESS", "FAILURE"}


@dataclass(frozen=True)
class Count:
    """What one run of a race came to.

    Attributes:
        right: How many payments there should be.
        landed: How many there are, in the provider's books.
        believed: How many the shop believes that there are, where it can say.
    """

    right: int
    landed: int
    believed: int | None = None

    @property
    def wrong(self) -> bool:
        """Whether money is amiss, or the shop's idea of it."""
        return self.landed != self.right or self.believed not in (None, self.landed)

    def __str__(self) -> str:
        """As in the table."""
        if self.believed in (None, self.landed):
            return str(self.landed)
        return f"{self.landed}, believes {self.believed}"


Results = dict[str, dict[str, Count]]


class Rig:
    """A fleet of Celery alone, and what a race needs of it.

    Args:
        fleet: Its workers.
        banks: The providers.
        client: Of the broker.
        books: File of the shop's own database.
    """

    def __init__(self, fleet: Fleet, banks: Banks, client: Any, books: Path) -> None:
        self.fleet = fleet
        self.banks = banks
        self.redis = client
        self._books = books
        self._arming = Lock()

    def bank(self, way: str) -> Bank:
        """The provider of this way."""
        return self.banks[plain.MODES[way]]

    def paid(self, way: str, order: str, cents: int = 10_000) -> Bank:
        """The provider, where an order has been paid for."""
        self.bank(way).charge(order, cents)
        return self.bank(way)

    def write(self, statement: str, *values: Any) -> None:
        """Change the shop's own books."""
        with closing(sqlite3.connect(self._books, timeout=10)) as shop, shop:
            shop.execute(statement, values)

    def read(self, query: str, *values: Any) -> Any:
        """The first value of the first row."""
        with closing(sqlite3.connect(self._books, timeout=10)) as shop:
            return shop.execute(query, values).fetchone()[0]

    # -- tasks -----------------------------------------------------------------------------

    def send(self, task: Any, order: str, *, task_id: str | None = None, **options: Any) -> str:
        """Send a message; returns the task's id."""
        task_id = task_id or f"{order}:{uuid4().hex[:6]}"
        task.apply_async(kwargs={"order": order, **options}, task_id=task_id)
        return task_id

    def state(self, task_id: str) -> str:
        """What the shop is told of a task."""
        return str(plain.app.AsyncResult(task_id).state)

    def end(self, task_id: str) -> str:
        """Wait until the shop is told an end."""
        wait_for(
            lambda: self.state(task_id) in READY,
            END_SECONDS,
            lambda: f"the end of {task_id}: {self.state(task_id)}\n{self.fleet.logs()}",
            poll=0.1,
        )
        return self.state(task_id)

    def believes(self, *task_ids: str) -> int:
        """How many of the tasks the shop counts as paid."""
        return sum(self.end(task_id) == "SUCCESS" for task_id in task_ids)

    def copies(self, task_id: str) -> tuple[int, int]:
        """How many copies were received, and how many have come to an end."""
        words = [
            line.partition(f"[{task_id}] ")[2].partition(" ")[0]
            for worker in self.fleet.workers
            for line in worker.log().splitlines()
            if f"[{task_id}] " in line
        ]
        received = words.count("received")
        return received, len(words) - received

    def quiet(self, task_id: str) -> None:
        """Wait until every copy that was received has ended."""
        wait_for(
            lambda: len(set(self.copies(task_id))) == 1,
            END_SECONDS,
            lambda: f"{self.copies(task_id)} copies of {task_id}",
            poll=0.1,
        )

    def _tail(self) -> str:
        """What the workers have printed, for a race that doesn't go on."""
        return "\n".join(worker.log() for worker in self.fleet.workers)

    # -- faults ----------------------------------------------------------------------------

    def arm(self, point: str, action: str, order: str, **match: str) -> Fault:
        """Something happens to the first copy that comes there."""
        with self._arming:
            return self.fleet.arm(f"plain.{point}", action, order=order, **match)

    def fired(self, fault: Fault) -> int:
        """Wait until it happens; the process that it happened to."""
        stem = fault.path.stem
        wait_for(fault.fired, END_SECONDS, lambda: f"{stem} to fire\n{self._tail()}", poll=0.05)
        return int(fault.fired()[0]["pid"])


Scenario = Callable[[Rig, str, str], Count]

WAYS = ("keyed", "looks", "blind")


@contextmanager
def open_rig(folder: Path, banks: Banks) -> Iterator[Rig]:
    """Two workers of 24 processes each, on a Valkey of their own."""
    books = folder / "books.sqlite3"
    with closing(sqlite3.connect(books)) as shop:
        shop.execute("PRAGMA journal_mode = WAL")
        shop.executescript(plain.SCHEMA)
    with embedded_redis(folder / "redis") as server:
        plain.app.conf.update(broker_url=server.url, result_backend=server.url)
        environment = {
            **banks.environment,
            plain.BROKER: server.url,
            plain.BOOKS: str(books),
        }
        with Fleet(folder, "tests.acceptance.races.plain", environment) as fleet:
            fleet.ready(2, concurrency=24)
            client = redis.Redis.from_url(server.url)
            yield Rig(fleet, banks, client, books)
            client.close()


def measure(folder: Path, banks: Banks) -> Results:
    """Run all scenarios at once, and after them those that need the broker for themselves."""
    from tests.acceptance.races.scenarios import ALONE, TOGETHER

    results: Results = {}
    with open_rig(folder, banks) as rig, ThreadPoolExecutor(48) as pool:
        running = {
            (race, way): pool.submit(scenario, rig, way, f"{race}-{way}")
            for race, (ways, scenario) in TOGETHER.items()
            for way in ways
        }
        for (race, way), future in running.items():
            try:
                results.setdefault(race, {})[way] = future.result()
            except Exception as problem:
                problem.add_note(f"{race}, {way}")
                raise
        for race, (ways, scenario) in ALONE.items():
            for way in ways:
                results.setdefault(race, {})[way] = scenario(rig, way, f"{race}-{way}")
    return results


def thaw(pid: int) -> None:
    """Let a process go on."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def load() -> Results:
    """What was measured and recorded."""
    stored: Mapping[str, Mapping[str, Any]] = json.loads(MEASURED.read_text("utf-8"))
    return {
        race: {way: Count(**count) for way, count in ways.items()} for race, ways in stored.items()
    }


def save(results: Results) -> None:
    """Record what was measured."""
    stored = {
        race: {way: asdict(count) for way, count in sorted(ways.items())}
        for race, ways in sorted(results.items())
    }
    MEASURED.write_text(json.dumps(stored, indent=2) + "\n", "utf-8")


def main() -> None:
    """Measure and record."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_banks(folder) as banks:
            os.environ.update(banks.environment)
            results = measure(folder, banks)
    save(results)
    for race, ways in sorted(results.items()):
        sys.stdout.write(f"{race:32} {', '.join(f'{w}: {c}' for w, c in ways.items())}\n")


if __name__ == "__main__":
    main()
