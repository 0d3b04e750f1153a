"""A verifier that can't fail is worthless: a finished run is broken in one way at a time.

The factory's part of the invariants; the engine's own has its own tests.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coordinator.runs import locate
from coordinator.verifier import verify_run
from fencepost.serde import digest
from fencepost.verify import Report
from tests.acceptance.factory.conftest import FinishedRun


@dataclass(frozen=True)
class Copy:
    """A copy of the finished run, to be broken."""

    folder: Path
    report: Any

    @property
    def line(self) -> str:
        """The id of the line of attempts."""
        line: str = self.report["execution_id"]
        return line

    @property
    def staging(self) -> Path:
        return self.folder / "artifacts" / "staging"

    @property
    def published(self) -> Path:
        return self.folder / "artifacts" / "published"

    def attempt(self, number: int) -> str:
        """The id of an attempt as SQLite has it."""
        found: str = self.report["attempts"][number - 1]["execution_id"]
        return found.replace("-", "")

    def sql(self, *statements: str, **values: Any) -> list[Any]:
        """Change, or ask, the database behind everybody's back."""
        rows: list[Any] = []
        with closing(sqlite3.connect(self.folder / "fencepost.sqlite3")) as connection, connection:
            for statement in statements:
                rows = connection.execute(statement, values).fetchall()
        return rows

    def staged(self, module: str) -> Path:
        """The staged file of a module of the second attempt."""
        (found,) = (self.staging / self.line / "2" / module).iterdir()
        return found

    def published_file(self, module: str) -> Path:
        (found,) = self.published.rglob(f"{module}-*.tar.gz")
        return found

    def verify(self) -> Report:
        return verify_run(locate(str(self.folder), Path("runs"), {}), settle=0.0)


@pytest.fixture
def copy(finished_demo: FinishedRun, tmp_path: Path) -> Copy:
    """A copy of the finished demo."""
    folder = tmp_path / "copy"
    shutil.copytree(finished_demo.folder, folder)
    return Copy(folder, finished_demo.report)


def codes(report: Report) -> set[str]:
    return {violation.code for violation in report.violations}


def test_a_copy_that_is_left_alone_is_whole(copy: Copy) -> None:
    report = copy.verify()
    assert report.ok, report.violations
    assert report.line(4).examined["ledger rows"] == 19
    assert report.line(6).examined["failed attempts"] == 1
    assert report.line(7).examined["staged files"] == 3
    assert report.line(7).examined["published files"] == 3
    assert report.line(9).examined == {"promotions": 3, "staged artifacts": 3}


Break = Callable[[Copy], object]


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"an archive that nobody asked for")


def _append(path: Path) -> None:
    path.chmod(0o644)
    with path.open("ab") as stream:
        stream.write(b"!")


def _promote_twice(copy: Copy) -> None:
    # The schema itself forbids it, so the copy gets a table without constraints.
    copy.sql(
        "ALTER TABLE ledger_promotions RENAME TO was",
        "CREATE TABLE ledger_promotions AS SELECT * FROM was",
        "INSERT INTO ledger_promotions SELECT * FROM was WHERE module = 'auth-service'",
    )


ACTIVE: dict[str, tuple[str, Break]] = {
    "an artifact": (
        "ledger.artifact-active",
        lambda copy: copy.sql(
            "UPDATE ledger_artifacts SET status = 'STAGED'"
            " WHERE attempt_id = :failed AND module = 'auth-service'",
            failed=copy.attempt(1),
        ),
    ),
    "an attestation": (
        "ledger.attestation-active",
        lambda copy: copy.sql(
            "UPDATE ledger_attestations SET status = 'ACTIVE' WHERE attempt_id = :failed",
            failed=copy.attempt(1),
        ),
    ),
    "the attempt": (
        "ledger.attempt-active",
        lambda copy: copy.sql(
            "UPDATE ledger_attempts SET status = 'ACTIVE' WHERE execution_id = :failed",
            failed=copy.attempt(1),
        ),
    ),
    "a file": (
        "staging.file-left",
        lambda copy: _write(copy.staging / copy.line / "1" / "auth-service" / "a-1.e1.tar.gz"),
    ),
}


@pytest.mark.parametrize("what", ACTIVE)
def test_6_something_of_a_failed_attempt_is_active(copy: Copy, what: str) -> None:
    code, destroy = ACTIVE[what]
    destroy(copy)
    report = copy.verify()
    assert (report.violated, codes(report)) == ([6], {code})


def test_6_a_failed_attempt_that_promoted_a_module(copy: Copy) -> None:
    copy.sql(
        "UPDATE ledger_promotions SET attempt_id = :failed WHERE module = 'auth-service'",
        failed=copy.attempt(1),
    )
    report = copy.verify()
    # It is missing from the attempt that succeeded, too.
    assert report.violated == [6, 9]
    assert codes(report) == {"ledger.promoted-nonetheless", "promotion.incomplete"}


ORPHANED: dict[str, tuple[str, Break]] = {
    "a staged file": (
        "staging.orphan",
        lambda copy: _write(copy.staging / copy.line / "2" / "auth-service" / "a-1.e9.tar.gz"),
    ),
    "an unfinished file": (
        "staging.orphan",
        lambda copy: _write(copy.staging / copy.line / "2" / "auth-service" / ".a-1.e9.gz.part"),
    ),
    "a published folder": (
        "publish.orphan",
        lambda copy: _write(copy.published / "storefront" / "2026.1-0000" / "a-1.tar.gz"),
    ),
    "a lock": (
        "ledger.lock-held",
        lambda copy: copy.sql(
            "INSERT INTO ledger_candidate_locks"
            " (release, execution_id, lineage_id, step_key, epoch, acquired_at)"
            " VALUES ('storefront', :holder, :line, 'x', 1, '2026-01-01 00:00:00')",
            holder=copy.attempt(2),
            line=copy.attempt(1),
        ),
    ),
}


@pytest.mark.parametrize("what", ORPHANED)
def test_7_something_is_orphaned(copy: Copy, what: str) -> None:
    code, destroy = ORPHANED[what]
    destroy(copy)
    report = copy.verify()
    assert (report.violated, codes(report)) == ([7], {code})


def test_7_the_lock_of_another_line_is_its_own_business(copy: Copy) -> None:
    other = "0" * 32
    copy.sql(
        "INSERT INTO ledger_candidate_locks"
        " (release, execution_id, lineage_id, step_key, epoch, acquired_at)"
        " VALUES ('storefront', :other, :other, 'x', 1, '2026-01-01 00:00:00')",
        other=other,
    )
    # It may be publishing right now.
    _write(copy.published / "storefront" / ".incoming-1" / "a-1.tar.gz")
    assert copy.verify().ok


PROMOTED: dict[str, tuple[set[str], Break]] = {
    "twice": ({"promotion.twice"}, _promote_twice),
    "a file with other bytes": (
        {"promotion.file-differs"},
        lambda copy: _append(copy.published_file("payment-engine")),
    ),
    "a file that is gone": (
        {"promotion.file-differs"},
        lambda copy: copy.published_file("payment-engine").unlink(),
    ),
    "another digest in the ledger": (
        {"promotion.file-differs", "promotion.artifact-differs"},
        lambda copy: copy.sql(
            "UPDATE ledger_promotions SET sha256 = :no WHERE module = 'auth-service'", no="0" * 64
        ),
    ),
    "not all modules": (
        {"promotion.incomplete"},
        lambda copy: copy.sql("DELETE FROM ledger_promotions WHERE module = 'auth-service'"),
    ),
    "an artifact that isn't promoted": (
        {"promotion.artifact-differs"},
        lambda copy: copy.sql(
            "UPDATE ledger_artifacts SET status = 'STAGED'"
            " WHERE attempt_id = :second AND module = 'auth-service'",
            second=copy.attempt(2),
        ),
    ),
    "a staged file with other bytes": (
        {"artifact.file-differs"},
        lambda copy: _append(copy.staged("auth-service")),
    ),
    "a staged file that is gone": (
        {"artifact.file-differs"},
        lambda copy: copy.staged("auth-service").unlink(),
    ),
}


@pytest.mark.parametrize("what", PROMOTED)
def test_9_what_is_out_is_not_what_the_ledger_has(copy: Copy, what: str) -> None:
    expected, destroy = PROMOTED[what]
    destroy(copy)
    report = copy.verify()
    assert (report.violated, codes(report)) == ([9], expected)


def test_4_a_ledger_row_of_another_epoch_than_its_checkpoint(copy: Copy) -> None:
    copy.sql(
        "UPDATE ledger_artifacts SET epoch = 1 WHERE epoch = 2 AND attempt_id = :second",
        second=copy.attempt(2),
    )
    report = copy.verify()
    assert (report.violated, codes(report)) == ([4], {"ledger.epoch-differs"})


def test_8_a_ledger_row_with_a_refused_payload(copy: Copy) -> None:
    ((details, key),) = copy.sql(
        "SELECT details, step_key FROM ledger_artifacts WHERE epoch = 2 AND attempt_id = :second",
        second=copy.attempt(2),
    )
    copy.sql(
        "UPDATE fencepost_events SET payload_digest = :digest"
        " WHERE name = 'ZOMBIE_WRITE_REJECTED' AND step_key = :key",
        digest=digest(json.loads(details)),
        key=key,
    )
    report = copy.verify()
    assert report.violated == [8]
    assert "ledger.refused-payload" in codes(report)
