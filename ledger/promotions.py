"""Promotions in the ledger: the rows of a release appear in one transaction, or not at all."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost import FenceToken
from ledger.errors import AlreadyPromotedError
from ledger.models import Promotion
from ledger.vocabulary import PromotedRelease


def check_not_promoted(session: Session, release: str, version: str) -> None:
    """Refuse a version that is out.

    Raises:
        AlreadyPromotedError: Names the execution that promoted it.
    """
    rows = of_release(session, release, version)
    if rows:
        raise AlreadyPromotedError(release, version, rows[0].attempt_id)


def record(
    session: Session, token: FenceToken, promoted: PromotedRelease, sources: Mapping[str, str]
) -> None:
    """Record all modules of a release as out.

    Args:
        session: The caller's.
        token: Of the promoting step.
        promoted: What was published.
        sources: The step key of each module's artifact.

    Raises:
        sqlalchemy.exc.IntegrityError: A module of this version is out already.
    """
    session.add_all(
        Promotion(
            release=promoted.release,
            version=promoted.version,
            module=module.module,
            module_version=module.version,
            attempt_id=promoted.attempt_id,
            artifact_step_key=sources[module.module],
            path=module.path,
            sha256=module.sha256,
            size=module.size,
            step_key=token.step_key,
            epoch=token.epoch,
        )
        for module in promoted.modules
    )
    session.flush()


def of_release(session: Session, release: str, version: str) -> list[Promotion]:
    """What is out of a release's version, by module."""
    query = sa.select(Promotion).where(Promotion.release == release, Promotion.version == version)
    return list(session.scalars(query.order_by(Promotion.module)))


def published_directories(session: Session) -> set[str]:
    """Directories, relative to the publish root, that promotions refer to."""
    paths = session.scalars(sa.select(Promotion.path).distinct())
    return {path.rpartition("/")[0] for path in paths}
