"""The candidate lock: at most one candidate of a release at a time."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from fencepost import FenceToken
from ledger.errors import CandidateLockedError
from ledger.models import CandidateLock, now


def acquire(session: Session, token: FenceToken, release: str, lineage_id: UUID) -> None:
    """Take the lock for the token's execution, in the caller's transaction.

    A lock left by an earlier attempt of the same line is taken over: a line's attempts never
    overlap.

    Raises:
        CandidateLockedError: Another line holds it.
    """
    values = {
        "execution_id": token.execution_id,
        "lineage_id": lineage_id,
        "step_key": token.step_key,
        "epoch": token.epoch,
        "acquired_at": now(),
    }
    insert = _insert(session)(CandidateLock).values(release=release, **values)
    statement = insert.on_conflict_do_update(
        index_elements=[CandidateLock.release],
        set_=values,
        where=CandidateLock.lineage_id == lineage_id,
    ).returning(CandidateLock.execution_id)
    if session.execute(statement).first() is None:
        held = holder(session, release)
        owner = held.execution_id if held else "an execution that has just ended"
        raise CandidateLockedError(
            f"a candidate of {release} is under way: execution {owner};"
            " wait for its end, or cancel it",
            release=release,
            holder=str(owner),
        )


def free(session: Session, release: str, execution_id: UUID) -> None:
    """Give the lock up if this execution holds it; to do it again changes nothing."""
    session.execute(
        sa.delete(CandidateLock).where(
            CandidateLock.release == release, CandidateLock.execution_id == execution_id
        )
    )


def holder(session: Session, release: str) -> CandidateLock | None:
    """Who holds the lock of a release."""
    return session.get(CandidateLock, release)


def _insert(session: Session) -> Any:
    # The two databases share ON CONFLICT, but SQLAlchemy spells it once for each.
    name = session.get_bind().dialect.name
    return postgresql.insert if name == "postgresql" else sqlite.insert
