"""The ledger as the verifier reads it: queries of its own, without the ledger's code.

A verifier that asked the code under suspicion would repeat its mistakes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy as sa

COMPENSATED = "COMPENSATED"
PROMOTED = "PROMOTED"
_CHUNK = 1 << 20

_ATTEMPTS = """
SELECT execution_id, attempt, release, version, status, step_key, epoch
FROM ledger_attempts WHERE lineage_id = :lineage ORDER BY attempt
"""
_ARTIFACTS = """
SELECT a.attempt_id, a.module, a.step_key, a.epoch, a.path, a.sha256, a.size, a.status, a.details
FROM ledger_artifacts a JOIN ledger_attempts t ON t.execution_id = a.attempt_id
WHERE t.lineage_id = :lineage ORDER BY t.attempt, a.module, a.id
"""
_ATTESTATIONS = """
SELECT a.attempt_id, a.module, a.step_key, a.epoch, a.status
FROM ledger_attestations a JOIN ledger_attempts t ON t.execution_id = a.attempt_id
WHERE t.lineage_id = :lineage ORDER BY t.attempt, a.module
"""
_DIAGNOSTICS = """
SELECT d.attempt_id, d.step_key, d.epoch
FROM ledger_diagnostics d JOIN ledger_attempts t ON t.execution_id = d.attempt_id
WHERE t.lineage_id = :lineage ORDER BY t.attempt
"""
# Of the whole version: another line may have promoted it too.
_PROMOTIONS = """
SELECT p.attempt_id, p.release, p.version, p.module, p.artifact_step_key, p.path, p.sha256,
       p.size, p.step_key, p.epoch
FROM ledger_promotions p
WHERE EXISTS (SELECT 1 FROM ledger_attempts t WHERE t.lineage_id = :lineage
              AND t.release = p.release AND t.version = p.version)
ORDER BY p.module, p.id
"""
_LOCKS = """
SELECT l.release, l.execution_id, l.lineage_id FROM ledger_candidate_locks l
WHERE EXISTS (SELECT 1 FROM ledger_attempts t WHERE t.lineage_id = :lineage
              AND t.release = l.release)
"""
_PUBLISHED = "SELECT path FROM ledger_promotions WHERE release = :release"


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """A row of `ledger_attempts`."""

    execution_id: UUID
    attempt: int
    release: str
    version: str
    status: str
    step_key: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    """A row of `ledger_artifacts`; `path` is relative to the staging root."""

    attempt_id: UUID
    module: str
    step_key: str
    epoch: int
    path: str
    sha256: str
    size: int
    status: str
    details: Any


@dataclass(frozen=True, slots=True)
class StatementRow:
    """A row of `ledger_attestations`."""

    attempt_id: UUID
    module: str
    step_key: str
    epoch: int
    status: str


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """A row of `ledger_diagnostics`."""

    attempt_id: UUID
    step_key: str
    epoch: int


@dataclass(frozen=True, slots=True)
class PromotionRow:
    """A row of `ledger_promotions`; `path` is relative to the publish root."""

    attempt_id: UUID
    release: str
    version: str
    module: str
    artifact_step_key: str
    path: str
    sha256: str
    size: int
    step_key: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LockRow:
    """A row of `ledger_candidate_locks`."""

    release: str
    execution_id: UUID
    lineage_id: UUID


@dataclass(frozen=True)
class Line:
    """What the ledger has about one line of attempts, read in one transaction.

    Attributes:
        promotions: Of the line's release and version, whoever promoted them.
        locks: Of the line's release, whoever holds it.
        published: Directories, relative to the publish root, that any promotion of it names.
    """

    lineage_id: UUID
    attempts: list[AttemptRow]
    artifacts: list[ArtifactRow]
    statements: list[StatementRow]
    evidence: list[EvidenceRow]
    promotions: list[PromotionRow]
    locks: list[LockRow]
    published: set[str]

    @property
    def releases(self) -> set[str]:
        """The names of what was released; one, unless the ledger is damaged."""
        return {attempt.release for attempt in self.attempts}


def read_line(engine: sa.Engine, lineage_id: UUID) -> Line:
    """Read everything about a line of attempts.

    Args:
        engine: On the ledger's database.
        lineage_id: The first execution of the line.
    """
    with engine.connect() as connection:

        def rows(query: str, **columns: Any) -> Iterator[dict[str, Any]]:
            text = sa.text(query).bindparams(sa.bindparam("lineage", type_=sa.Uuid))
            typed = text.columns(**columns)
            for row in connection.execute(typed, {"lineage": lineage_id}):
                yield dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it

        ids: dict[str, Any] = {"attempt_id": sa.Uuid}
        attempts = [AttemptRow(**r) for r in rows(_ATTEMPTS, execution_id=sa.Uuid)]
        published = {
            path.rpartition("/")[0]
            for release in {attempt.release for attempt in attempts}
            for path in connection.scalars(sa.text(_PUBLISHED), {"release": release})
        }
        return Line(
            lineage_id=lineage_id,
            attempts=attempts,
            artifacts=[ArtifactRow(**r) for r in rows(_ARTIFACTS, **ids, details=sa.JSON)],
            statements=[StatementRow(**r) for r in rows(_ATTESTATIONS, **ids)],
            evidence=[EvidenceRow(**r) for r in rows(_DIAGNOSTICS, **ids)],
            promotions=[PromotionRow(**r) for r in rows(_PROMOTIONS, **ids)],
            locks=[LockRow(**r) for r in rows(_LOCKS, execution_id=sa.Uuid, lineage_id=sa.Uuid)],
            published=published,
        )


def files_below(root: Path, folder: str) -> list[str]:
    """All files, hidden ones included, below a folder; relative to the root, with slashes."""
    start = root / folder
    if not start.is_dir():
        return []
    return sorted(
        path.relative_to(root).as_posix() for path in start.rglob("*") if not path.is_dir()
    )


def fingerprint(path: Path) -> tuple[str, int] | None:
    """SHA-256 in hex and size in bytes; None if there is no such file."""
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return digest.hexdigest(), size
