"""How the verifier reads: one moment, nothing written, and clear words where it can't."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from fencepost import Status, TaskContext, task
from fencepost.errors import (
    ConfigurationError,
    ExecutionNotFoundError,
    SchemaError,
    ServiceUnavailableError,
)
from fencepost.verify import Facts, Findings, Invariant, Verdict, sql, verify
from tests.integration.verify.copies import EXECUTIONS
from tests.integration.verify.story import Order, release
from tests.support.inline import Inline


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: Any) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def fleet(url: str):
    fleet = Inline(url, [release])
    yield fleet
    fleet.close()


def test_a_snapshot_sees_one_moment(url, fleet):
    first = fleet.run(release, Order(count=1))
    database = sql.Database(url)
    with database.snapshot() as snapshot:
        before = [root for batch in snapshot.batches() for root in batch]
        second = fleet.run(release, Order(count=1))
        after = [root for batch in snapshot.batches() for root in batch]
    with database.snapshot() as snapshot:
        later = [root for batch in snapshot.batches() for root in batch]
    database.close()
    assert before == after == [first]
    assert set(later) == {first, second}


def test_a_snapshot_cannot_write(url, fleet):
    fleet.run(release, Order(count=1))
    database = sql.Database(url)
    with database.snapshot() as snapshot, pytest.raises(exc.DBAPIError, match=r"read-?only"):
        snapshot._connection.execute(sa.delete(EXECUTIONS))
    database.close()


def test_the_whole_database_is_read_in_parts(url, fleet, monkeypatch):
    runs = [fleet.run(release, Order(count=count)) for count in (1, 2, 3)]
    monkeypatch.setattr(sql, "RUNS_AT_ONCE", 2)
    parts: list[int] = []

    def count(facts: Facts, found: Findings) -> None:
        parts.append(len(facts.roots))
        found.examined("runs", len(facts.roots))

    report = verify(url, extra=[Invariant(20, count, title="Runs are counted")])
    assert report.ok
    assert parts == [2, 1]
    assert report.line(20).examined == {"runs": 3}
    assert report.line(20).title == "Runs are counted"
    assert report.executions == {"succeeded": len(runs) + 1 + 2 + 3}
    assert report.run is None


def test_one_run_is_verified_apart_from_the_others(url, fleet):
    first = fleet.run(release, Order(count=1))
    fleet.run(release, Order(count=2))
    report = verify(url, run=first)
    assert report.executions == {"succeeded": 2}


def test_a_run_that_has_not_ended_holds_the_invariants_too(url, fleet):
    root = fleet.start(release, Order(count=2))
    for _ in range(2):
        assert verify(url, run=root).ok
        fleet.deliver(fleet.queue.popleft())
    report = verify(url, run=root)
    assert report.ok
    assert report.executions == {"active": 1, "succeeded": 1, "waiting": 1}


def test_an_empty_database_proves_nothing(url, fleet):
    report = verify(url)
    assert report.ok
    assert {line.verdict for line in report.invariants} == {
        Verdict.NOTHING,
        Verdict.NOT_APPLICABLE,
    }


@pytest.mark.parametrize("run", [uuid4(), str(uuid4()), "no id at all"])
def test_an_unknown_run(url, fleet, run):
    with pytest.raises(ExecutionNotFoundError):
        verify(url, run=run)


def test_a_database_without_the_tables(postgres_url, tmp_path: Path):
    empty = tmp_path / "empty.sqlite3"
    empty.touch()
    for url in (postgres_url, f"sqlite:///{empty}"):
        with pytest.raises(SchemaError, match="fencepost migrate"):
            verify(url)


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path):
    missing = tmp_path / "missing.sqlite3"
    with pytest.raises(ServiceUnavailableError):
        verify(f"sqlite:///{missing}")
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_does_not_answer_is_named_without_its_password():
    with pytest.raises(ServiceUnavailableError) as caught:
        verify("postgresql://me:secret@127.0.0.1:1/db")
    assert "127.0.0.1:1/db" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["mysql://localhost/db", "nonsense", "sqlite://"])
def test_a_url_that_cannot_be_used(url):
    with pytest.raises(ConfigurationError):
        verify(url)


class TaskFailedError(Exception):
    pass


@task
def hopeless(ctx: TaskContext, order: Order) -> Order:
    ctx.run(recount, order)
    raise TaskFailedError


def recount(order: Order) -> Order:
    return order


def test_a_durable_task_that_failed_had_nothing_to_undo(url):
    fleet = Inline(url, [hopeless])
    root = fleet.run(hopeless, Order(count=1))
    assert fleet.row(root).status is Status.FAILED
    fleet.close()
    report = verify(url, run=root)
    assert report.ok, report.violations
    assert report.executions == {"failed": 1}
