"""Staged archives and their provenance in the ledger. The caller's session; never a commit."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost import FenceToken
from ledger.errors import ArtifactDamagedError
from ledger.models import Artifact, ArtifactStatus, Attestation, AttestationStatus, now
from ledger.vocabulary import StagedModuleArtifact


def record(session: Session, staged: StagedModuleArtifact) -> None:
    """Make a staged file visible.

    Sent with the session's next flush, which in a step is Fencepost's own, after it has checked
    the fence: a zombie is told that it is one, and doesn't trip over its successor's row. The
    flush raises `sqlalchemy.exc.IntegrityError` where the step has staged already.
    """
    session.add(
        Artifact(
            attempt_id=staged.attempt_id,
            module=staged.module,
            version=staged.version,
            execution_id=staged.execution_id,
            step_key=staged.step_key,
            epoch=staged.epoch,
            path=staged.path,
            sha256=staged.sha256,
            size=staged.size,
            details=staged.model_dump(mode="json"),
            status=ArtifactStatus.STAGED,
        )
    )


def as_staged(row: Artifact) -> StagedModuleArtifact:
    """The artifact as its step has returned it."""
    return StagedModuleArtifact.model_validate(row.details)


def of_attempt(session: Session, attempt_id: UUID) -> list[Artifact]:
    """All artifacts of an attempt, by module."""
    query = sa.select(Artifact).where(Artifact.attempt_id == attempt_id)
    return list(session.scalars(query.order_by(Artifact.module, Artifact.epoch)))


def active_paths(session: Session) -> set[str]:
    """Paths, relative to the staging root, of all files that must be there."""
    query = sa.select(Artifact.path).where(Artifact.status != ArtifactStatus.COMPENSATED)
    return set(session.scalars(query))


def check_recorded(session: Session, staged: StagedModuleArtifact) -> None:
    """Compare an artifact with its row.

    Raises:
        ArtifactDamagedError: The ledger has no such active artifact, or another digest for it.
    """
    rows = session.scalars(sa.select(Artifact).where(Artifact.step_key == staged.step_key)).all()
    active = [row for row in rows if row.status is not ArtifactStatus.COMPENSATED]
    if [(r.path, r.sha256, r.size) for r in active] == [(staged.path, staged.sha256, staged.size)]:
        return
    found = ", ".join(f"{row.path} {row.sha256} {row.status}" for row in rows) or "nothing"
    raise ArtifactDamagedError(
        f"module {staged.module}: {staged.path} isn't what the ledger has: {found}",
        module=staged.module,
        path=staged.path,
    )


def mark(session: Session, step_key: str, status: ArtifactStatus) -> None:
    """Change an artifact's status; to do it again changes nothing."""
    session.execute(
        sa.update(Artifact)
        .where(Artifact.step_key == step_key, Artifact.status != status)
        .values(status=status, closed_at=now())
    )


def attest(
    session: Session,
    token: FenceToken,
    staged: StagedModuleArtifact,
    statement: dict[str, Any],
    sha256: str,
) -> None:
    """Record a provenance statement; sent with the session's next flush, as in `record`.

    The flush raises `sqlalchemy.exc.IntegrityError` where the step has attested already.
    """
    session.add(
        Attestation(
            step_key=token.step_key,
            attempt_id=staged.attempt_id,
            module=staged.module,
            artifact_step_key=staged.step_key,
            statement=statement,
            sha256=sha256,
            epoch=token.epoch,
            status=AttestationStatus.ACTIVE,
        )
    )


def withdraw(session: Session, step_key: str) -> None:
    """Withdraw a statement; to do it again changes nothing."""
    session.execute(
        sa.update(Attestation)
        .where(Attestation.step_key == step_key)
        .values(status=AttestationStatus.COMPENSATED)
    )


def attestations(session: Session, attempt_id: UUID) -> list[Attestation]:
    """All statements about an attempt, by module."""
    query = sa.select(Attestation).where(Attestation.attempt_id == attempt_id)
    return list(session.scalars(query.order_by(Attestation.module)))
