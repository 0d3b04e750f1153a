"""The factory's checks on a ledger of their own: what a run that is under way may leave lying."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

import ledger
from coordinator.ledger_facts import files_below, fingerprint
from coordinator.verifier import FactoryVerifier
from fencepost.verify import ExecutionFact, Facts, Findings
from ledger.database import engine_for

LINE = uuid4()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """A ledger with one attempt of a line, whose lock it holds."""
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    ledger.migrate(url)
    made = engine_for(url)
    values = {"id": LINE.hex, "key": f"{LINE}:lock_candidate:1"}
    with made.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO ledger_attempts (execution_id, lineage_id, attempt, release, version,"
                " flags, request, status, step_key, epoch, opened_at) VALUES (:id, :id, 1, 'shop',"
                " '1', '[]', '{}', 'ACTIVE', :key, 1, '2026-01-01 00:00:00')"
            ),
            values,
        )
        connection.execute(
            sa.text(
                "INSERT INTO ledger_candidate_locks (release, execution_id, lineage_id, step_key,"
                " epoch, acquired_at) VALUES ('shop', :id, :id, :key, 1, '2026-01-01 00:00:00')"
            ),
            values,
        )
    yield made
    made.dispose()


def release(status: str) -> ExecutionFact:
    names = dict.fromkeys(ExecutionFact.__slots__)
    known = {
        "execution_id": LINE,
        "saga": "release",
        "lineage_id": LINE,
        "root_id": LINE,
        "status": status,
        "input": {"modules": [{"name": "app"}]},
    }
    return ExecutionFact(**names | known)  # type: ignore[arg-type] # most fields don't matter


def facts(execution: ExecutionFact) -> Facts:
    """One execution of which nothing else is known."""
    nothing: dict[str, Any] = {f.name: {} for f in fields(Facts) if f.default is MISSING}
    return Facts(**nothing | {"executions": {execution.execution_id: execution}})


def check(engine: sa.Engine, root: Path, number: int, status: str) -> set[str]:
    """The codes that an invariant's factory part reports for a release in this state."""
    found = Findings(number)
    for invariant in FactoryVerifier(engine, root / "staging", root / "published").invariants():
        if invariant.number == number:
            invariant.check(facts(release(status)), found)
    return {violation.code for violation in found.violations}


def stage(root: Path) -> None:
    path = root / "staging" / str(LINE) / "1" / "app" / "app-1.e1.tar.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")


@pytest.mark.parametrize("status", ["active", "waiting", "parked"])
def test_a_release_under_way_may_hold_its_lock_and_write_files(
    engine: sa.Engine, tmp_path: Path, status: str
) -> None:
    stage(tmp_path)
    assert [check(engine, tmp_path, number, status) for number in (4, 6, 7, 8, 9)] == [set()] * 5


def test_the_same_is_reported_once_it_has_ended(engine: sa.Engine, tmp_path: Path) -> None:
    stage(tmp_path)
    assert check(engine, tmp_path, 7, "succeeded") == {"staging.orphan", "ledger.lock-held"}
    assert check(engine, tmp_path, 9, "succeeded") == {"promotion.incomplete"}
    assert check(engine, tmp_path, 4, "succeeded") == {"ledger.epoch-differs"}


def test_a_failed_attempt_leaves_nothing(engine: sa.Engine, tmp_path: Path) -> None:
    stage(tmp_path)
    assert check(engine, tmp_path, 6, "compensated") == {
        "ledger.attempt-active",
        "staging.file-left",
    }
    # One thing is one finding.
    assert check(engine, tmp_path, 7, "compensated") == {"ledger.lock-held"}


def test_other_sagas_are_none_of_the_factorys_business(engine: sa.Engine, tmp_path: Path) -> None:
    stage(tmp_path)
    foreign = facts(replace(release("failed"), saga="refund"))
    found = Findings(7)
    for invariant in FactoryVerifier(engine, tmp_path, tmp_path).invariants():
        invariant.check(foreign, found)
    assert found.violations == []


def test_files_are_found_hidden_ones_too(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / ".part").write_bytes(b"")
    (tmp_path / "a" / "c").write_bytes(b"")
    assert files_below(tmp_path, "a") == ["a/b/.part", "a/c"]
    assert files_below(tmp_path, "none") == []


def test_a_fingerprint_is_digest_and_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert fingerprint(path) == (digest, 3)
    assert fingerprint(tmp_path / "none") is None
    assert fingerprint(path / "below-a-file") is None
