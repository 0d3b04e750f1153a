"""Evidence of integration checks. The caller's session; never a commit."""

from __future__ import annotations

from uuid import NAMESPACE_URL, UUID, uuid5

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost import FenceToken
from ledger.models import Diagnostics
from ledger.vocabulary import CheckedCandidate

_NAMESPACE = uuid5(NAMESPACE_URL, "urn:fencepost:factory:diagnostics")


def diagnostics_id(step_key: str) -> UUID:
    """The id of the diagnostics that belong to a check's step; the same after a takeover."""
    return uuid5(_NAMESPACE, step_key)


def record(session: Session, token: FenceToken, candidate: CheckedCandidate) -> None:
    """Keep what a check did, with the digests of what it was run on.

    Sent with the session's next flush (see `ledger.artifacts.record`), which raises
    `sqlalchemy.exc.IntegrityError` where the step has recorded already.
    """
    report = candidate.report
    session.add(
        Diagnostics(
            id=candidate.diagnostics_id,
            attempt_id=candidate.attempt_id,
            step_key=token.step_key,
            epoch=token.epoch,
            passed=report.passed,
            command=list(report.command),
            exit_code=report.exit_code,
            timed_out=report.timed_out,
            duration_ms=report.duration_ms,
            stdout=report.stdout,
            stderr=report.stderr,
            stdout_bytes=report.stdout_bytes,
            stderr_bytes=report.stderr_bytes,
            artifacts=[
                {
                    "module": module.artifact.module,
                    "version": module.artifact.version,
                    "path": module.artifact.path,
                    "sha256": module.artifact.sha256,
                    "flags": list(module.artifact.flags),
                }
                for module in candidate.modules
            ],
        )
    )


def get(session: Session, identity: UUID) -> Diagnostics | None:
    """One record by its id."""
    return session.get(Diagnostics, identity)


def of_attempt(session: Session, attempt_id: UUID) -> list[Diagnostics]:
    """All records of an attempt, oldest first."""
    query = sa.select(Diagnostics).where(Diagnostics.attempt_id == attempt_id)
    return list(session.scalars(query.order_by(Diagnostics.recorded_at)))
