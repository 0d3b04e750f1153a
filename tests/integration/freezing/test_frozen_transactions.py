"""Whoever is frozen in a transaction holds nobody up for longer than the lease TTL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from fencepost.records import Refused
from fencepost.stores.sql import SqlExecutionStore, SqlLimitStore, create_engine, migrate
from tests.conformance.support import NOW, Worker, eventually, new_owner, started
from tests.integration.freezing import victims

TTL = 2.0
"""What a fleet gives PostgreSQL as the time for which a transaction may stand idle, in seconds."""

BOUND = TTL + 1.0
LOAD = 3.0
"""Allowed on top, for a machine that is busy with other things."""

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Frozen:
    """One victim."""

    case: str
    pid: int
    execution_id: UUID
    at: float


@contextmanager
def frozen(url: str, folder: Path) -> Iterator[Iterator[Frozen]]:
    """Processes that stand still in the middle of transactions, as they come."""
    command = [sys.executable, "-m", victims.__name__, url, str(TTL), str(folder)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        count = int(process.stdout.readline())
        yield _as_they_come(folder, count)
    finally:
        process.stdin.close()
        process.wait(60)


def _as_they_come(folder: Path, count: int) -> Iterator[Frozen]:
    seen: set[Path] = set()
    while len(seen) < count:
        new = eventually(partial(_new, folder, frozenset(seen)), seconds=30.0)
        seen |= new
        yield from map(_read, new)


def _new(folder: Path, seen: frozenset[Path]) -> set[Path]:
    return set(folder.glob("*.json")) - seen


def _read(path: Path) -> Frozen:
    told = json.loads(path.read_text())
    return Frozen(path.stem, told["pid"], UUID(told["execution_id"]), told["at"])


class Others:
    """A worker that goes on with executions of its own, and how long one lap took at most."""

    def __init__(self, database: sa.Engine) -> None:
        self._store = SqlExecutionStore(database)
        self._limits = SqlLimitStore(self._store)
        self._stop = threading.Event()
        self.longest: dict[str, float] = {}
        self.failures: list[Exception] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Others:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _timed(self, what: str, act: Callable[[], Any]) -> Any:
        began = time.monotonic()
        result = act()
        self.longest[what] = max(self.longest.get(what, 0.0), time.monotonic() - began)
        return result

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._lap()
        except Exception as problem:  # noqa: BLE001 - it is what the test looks at
            self.failures.append(problem)

    def _lap(self) -> None:
        worker: Worker = self._timed("acquire", lambda: started(self._store))
        self._timed("commit", worker.commit)
        me, head = worker.execution_id, worker.head
        take = lambda: self._limits.take(me, "tills", victims.LIMIT, head=head, attempt=0)  # noqa: E731
        self._timed("take", take)
        self._timed("claim_due", lambda: self._store.claim_due(10, timedelta(hours=1)))
        self._timed("claim_waiting", lambda: self._store.claim_waiting(10, timedelta(hours=1)))
        self._timed("finish", worker.finish)


def taken_over(store: SqlExecutionStore, execution_id: UUID) -> None:
    """Become the owner, or be told by its state why not: both need the row's lock."""
    before = store.get(execution_id)
    assert before is not None
    answer = store.acquire(execution_id, new_owner(), before.epoch + 1, NOW)
    assert not isinstance(answer, Refused) or answer.epoch <= before.epoch + 1


def epoch_of(store: SqlExecutionStore, one: Frozen) -> int:
    found = store.get(one.execution_id)
    assert found is not None
    return found.epoch


@pytest.fixture
def database(postgres_url: str) -> Iterator[sa.Engine]:
    migrate(postgres_url)
    idle = timedelta(seconds=TTL)
    engine = create_engine(postgres_url, idle_in_transaction=idle, pool_size=20)
    yield engine
    engine.dispose()


def test_on_postgresql_wherever_it_is_frozen(
    postgres_url: str, database: sa.Engine, tmp_path: Path
) -> None:
    """Between any two statements of an operation, and before its commit."""
    store = SqlExecutionStore(database)
    limits = SqlLimitStore(store)

    def take_over(one: Frozen) -> tuple[str, float]:
        taken_over(store, one.execution_id)
        limits.serve(str(one.execution_id), victims.LIMIT)
        return one.case, time.time() - one.at

    with (
        Others(database) as others,
        frozen(postgres_url, tmp_path) as all_of_them,
        ThreadPoolExecutor(16) as threads,
    ):
        taking = [threads.submit(take_over, one) for one in all_of_them]
        late = dict(each.result() for each in taking)
    assert {case.rpartition("-")[0] for case in late} == set(victims.OPERATIONS)
    slowest = max(late, key=lambda case: late[case])
    print(f"\n{len(late)} places; the last to be taken over: {slowest}, {late[slowest]:.2f} s")
    print(f"the others' longest: { ({k: round(v, 2) for k, v in others.longest.items()}) }")
    assert not others.failures
    assert late[slowest] < BOUND + LOAD, late
    assert max(others.longest.values()) < BOUND + LOAD


def test_on_postgresql_with_the_answer_half_read(
    postgres_url: str, database: sa.Engine, tmp_path: Path
) -> None:
    """The server isn't idle then: it waits for a client that takes no more of what it asked for."""
    store = SqlExecutionStore(database)
    worker = started(store)
    for number in range(40):
        worker.commit(f"step-{number}", {"text": "x" * 500_000})
    epoch = worker.epoch
    with database.connect() as holds_up:
        holds_up.execution_options(isolation_level="READ COMMITTED")
        holds_up.execute(sa.text("LOCK TABLE fencepost_checkpoints IN ACCESS EXCLUSIVE MODE"))
        pid = os.fork()
        if pid == 0:
            mine = create_engine(postgres_url, idle_in_transaction=timedelta(seconds=TTL))
            SqlExecutionStore(mine).acquire(worker.execution_id, "victim", epoch + 1, NOW)
            os._exit(0)
        try:
            eventually(lambda: _waiting(database, "Lock"))
            os.kill(pid, signal.SIGSTOP)
            holds_up.commit()
            eventually(lambda: _waiting(database, "Client"))
            began = time.monotonic()
            taken_over(store, worker.execution_id)
            took = time.monotonic() - began
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    print(f"\ntaken over after {took:.2f} s")
    assert took < BOUND + LOAD
    assert worker.execution.owner != "victim"


def _waiting(database: sa.Engine, kind: str) -> bool:
    query = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND state = 'active' AND wait_event_type = :kind"
    )
    with database.connect() as connection:
        return bool(connection.execute(query, {"kind": kind}).scalar_one())


def test_on_sqlite_all_writers_wait_until_it_thaws(sqlite_url: str, tmp_path: Path) -> None:
    """No server ends its transaction. Nobody who reads waits; what is written is written once."""
    migrate(sqlite_url)
    database = create_engine(sqlite_url)
    store = SqlExecutionStore(database)
    other = started(store)
    folder = tmp_path / "victims"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", victims.__name__, sqlite_url, str(TTL), str(folder), "one:acquire"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
    )
    assert process.stdin is not None
    try:
        path = folder / "acquire-2.json"
        eventually(path.exists, seconds=60.0)
        victim = _read(path)
        written = threading.Thread(target=other.commit)
        began = time.monotonic()
        written.start()
        while time.monotonic() < began + TTL + 1.0:
            assert epoch_of(store, victim) == 1
            assert written.is_alive()
            time.sleep(0.05)
        os.kill(victim.pid, signal.SIGCONT)
        written.join(10)
        assert not written.is_alive()
        assert [c.seq for c in store.chain(other.execution_id)] == [0, 1]
        eventually(lambda: epoch_of(store, victim) == 2)
    finally:
        process.stdin.close()
        process.wait(30)
        database.dispose()
