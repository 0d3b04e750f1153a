"""A sink that keeps to the contract, and sinks that don't, each in one way.

Not collected by itself: `test_the_suite.py` runs the suite against it and looks at what fails.
All are on the standard library's sqlite3, as a user without SQLAlchemy might write them.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost.errors import EffectKeyConflictError, StaleLeaseFenceError
from fencepost.fence import FenceToken
from fencepost.sinks import Applied, SinkCall
from fencepost.testing.sinks import FencedSinkConformance, SinkUnderTest

SCHEMA = """
CREATE TABLE IF NOT EXISTS marks (resource, execution, epoch INT, UNIQUE (resource, execution));
CREATE TABLE IF NOT EXISTS keys (resource, key, digest, value, epoch INT, UNIQUE (resource, key));
CREATE TABLE IF NOT EXISTS texts (resource, value);
"""


@dataclass
class Right(SinkUnderTest):
    """Everything in one transaction that excludes other writers from its first statement on."""

    path: Path

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(self.connect()) as db:
            db.execute("BEGIN IMMEDIATE")
            with db:
                yield db

    def connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        db.execute("PRAGMA synchronous = OFF")
        db.executescript(SCHEMA)
        return db

    def advance(self, resource: str, token: FenceToken) -> None:
        with self.transaction() as db:
            self.check(db, resource, token)

    def check(self, db: sqlite3.Connection, resource: str, token: FenceToken) -> None:
        mark = (resource, self.marked(token))
        query = "SELECT epoch FROM marks WHERE (resource, execution) = (?, ?)"
        (current,) = db.execute(query, mark).fetchone() or (0,)
        if self.stale(token.epoch, current):
            raise StaleLeaseFenceError(token.execution_id, held=token.epoch, current=current)
        db.execute("REPLACE INTO marks VALUES (?, ?, ?)", (*mark, token.epoch))

    def marked(self, token: FenceToken) -> str:
        return str(token.execution_id)

    def stale(self, held: int, current: int) -> bool:
        return held < current

    def write(self, call: SinkCall, value: str) -> Applied[str]:
        with self.transaction() as db:
            self.check(db, call.resource, call.token)
            first = self.find(db, call)
            if first is not None:
                return first
            self.put(db, call, value)
        return Applied(result=value, replayed=False, epoch=call.token.epoch)

    def find(self, db: sqlite3.Connection, call: SinkCall) -> Applied[str] | None:
        query = "SELECT digest, value, epoch FROM keys WHERE (resource, key) = (?, ?)"
        found = db.execute(query, (call.resource, call.key)).fetchone()
        if found is None:
            return None
        digest, value, epoch = found
        if self.conflicts(call.digest, digest):
            raise EffectKeyConflictError("used for another request")
        return Applied(result=value, replayed=True, epoch=epoch)

    def conflicts(self, digest: str | None, recorded: str | None) -> bool:
        return digest != recorded

    def put(self, db: sqlite3.Connection, call: SinkCall, value: str) -> None:
        known = (call.resource, call.key, call.digest, value, call.token.epoch)
        db.execute("REPLACE INTO keys VALUES (?, ?, ?, ?, ?)", known)
        db.execute("INSERT INTO texts VALUES (?, ?)", (call.resource, value))

    def landed(self, resource: str) -> list[str]:
        with contextlib.closing(self.connect()) as db:
            query = "SELECT value FROM texts WHERE resource = ? ORDER BY rowid"
            return [value for (value,) in db.execute(query, (resource,))]


class ChecksThenWrites(Right):
    """The very same statements, and each of them alone is atomic."""

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(self.connect()) as db:
            yield db


class ChecksThenWritesInOneTransactionEach(Right):
    """Check and write are transactions, but not the same one."""

    def write(self, call: SinkCall, value: str) -> Applied[str]:
        with self.transaction() as db:
            self.check(db, call.resource, call.token)
            first = self.find(db, call)
        if first is not None:
            return first
        with self.transaction() as db:
            self.put(db, call, value)
        return Applied(result=value, replayed=False)


class BeginsTooLate(Right):
    """A deferred transaction reads first, and another connection has written since."""

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(self.connect()) as db:
            yield db
            db.commit()

    def put(self, db: sqlite3.Connection, call: SinkCall, value: str) -> None:
        db.execute("BEGIN IMMEDIATE")
        super().put(db, call, value)


class HasNoFence(Right):
    def stale(self, held: int, current: int) -> bool:
        return False


class HasOneMarkForAll(Right):
    def marked(self, token: FenceToken) -> str:
        return "everyone"


class RefusesItsOwner(Right):
    def stale(self, held: int, current: int) -> bool:
        return held <= current


class LowersItsMark(Right):
    """Not stale if it is one below: an off-by-one that also writes the lower mark."""

    def stale(self, held: int, current: int) -> bool:
        return held < current - 1


class ForgetsKeys(Right):
    def find(self, db: sqlite3.Connection, call: SinkCall) -> Applied[str] | None:
        return None


class LooksForTheKeyFirst(Right):
    """A zombie with a known key isn't told, and the new owner's replay raises no mark."""

    def write(self, call: SinkCall, value: str) -> Applied[str]:
        with contextlib.closing(self.connect()) as db:
            first = self.find(db, call)
        return super().write(call, value) if first is None else first


class TakesAnyRequestForTheFirst(Right):
    def conflicts(self, digest: str | None, recorded: str | None) -> bool:
        return False


class ForgetsAtItsRestart(Right):
    """Its marks live in the object."""

    def started_again(self) -> ForgetsAtItsRestart:
        return ForgetsAtItsRestart(self.path.with_name("another.sqlite3"))


def suite_for(kind: type[Right]) -> type[FencedSinkConformance]:
    class Suite(FencedSinkConformance):
        @pytest.fixture
        def sink(self, tmp_path: Path) -> SinkUnderTest:
            return kind(tmp_path / "sink.sqlite3")

    Suite.__name__ = Suite.__qualname__ = f"Test{kind.__name__}"
    return Suite


WRONG: list[type[Right]] = [
    ChecksThenWrites,
    ChecksThenWritesInOneTransactionEach,
    BeginsTooLate,
    HasNoFence,
    HasOneMarkForAll,
    RefusesItsOwner,
    LowersItsMark,
    ForgetsKeys,
    LooksForTheKeyFirst,
    TakesAnyRequestForTheFirst,
    ForgetsAtItsRestart,
]
KINDS: list[type[Right]] = [Right, *WRONG]
for kind in KINDS:
    globals()[f"Test{kind.__name__}"] = suite_for(kind)
