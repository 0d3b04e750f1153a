"""Attempts in the ledger. Every function takes the caller's session and never commits."""

from __future__ import annotations

from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost import FenceToken
from ledger import artifacts
from ledger.errors import AttemptNotFoundError
from ledger.models import Attempt, AttemptStatus, now
from ledger.vocabulary import CompensatedReleaseCandidate, LockedCandidate, ReleaseRequest


def open_attempt(session: Session, token: FenceToken, candidate: LockedCandidate) -> None:
    """Record that an execution works on a release."""
    request = candidate.request
    session.add(
        Attempt(
            execution_id=candidate.execution_id,
            lineage_id=candidate.lineage_id,
            attempt=request.attempt,
            release=request.name,
            version=request.version,
            flags=list(request.flags),
            request=request.model_dump(mode="json"),
            status=AttemptStatus.ACTIVE,
            step_key=token.step_key,
            epoch=token.epoch,
        )
    )
    session.flush()


def get(session: Session, attempt_id: UUID) -> Attempt:
    """The attempt of a release execution.

    Raises:
        AttemptNotFoundError: There is none.
    """
    row = session.get(Attempt, attempt_id)
    if row is None:
        raise AttemptNotFoundError(
            f"the ledger has no attempt {attempt_id}", attempt_id=str(attempt_id)
        )
    return row


def close(session: Session, attempt_id: UUID, status: AttemptStatus) -> None:
    """End an attempt; to close it again the same way changes nothing."""
    session.execute(
        sa.update(Attempt)
        .where(Attempt.execution_id == attempt_id, Attempt.status != status)
        .values(status=status, closed_at=now())
    )


def request_of(session: Session, attempt_id: UUID) -> ReleaseRequest:
    """What an attempt was asked to do.

    Raises:
        AttemptNotFoundError: There is none.
    """
    return ReleaseRequest.model_validate(get(session, attempt_id).request)


def of_lineage(session: Session, lineage_id: UUID) -> list[Attempt]:
    """All attempts of a line, in order."""
    query = sa.select(Attempt).where(Attempt.lineage_id == lineage_id).order_by(Attempt.attempt)
    return list(session.scalars(query))


def of_release(session: Session, release: str) -> list[Attempt]:
    """All attempts at any version of a release, oldest first."""
    query = sa.select(Attempt).where(Attempt.release == release)
    return list(session.scalars(query.order_by(Attempt.opened_at, Attempt.attempt)))


def compensated_candidate(session: Session, attempt_id: UUID) -> CompensatedReleaseCandidate:
    """What is on record of an attempt that was undone.

    Raises:
        AttemptNotFoundError: There is no such attempt, or it isn't compensated.
    """
    row = get(session, attempt_id)
    if row.status is not AttemptStatus.COMPENSATED:
        raise AttemptNotFoundError(
            f"attempt {attempt_id} is {row.status}, not COMPENSATED", attempt_id=str(attempt_id)
        )
    line = of_lineage(session, row.lineage_id)
    staged = artifacts.of_attempt(session, attempt_id)
    return CompensatedReleaseCandidate(
        attempt_id=attempt_id,
        lineage_id=row.lineage_id,
        request=ReleaseRequest.model_validate(row.request),
        artifacts=tuple(artifacts.as_staged(artifact) for artifact in staged),
        tried_flags=tuple(tuple(each.flags) for each in line if each.attempt <= row.attempt),
    )
