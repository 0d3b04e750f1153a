"""The planner's answers in the ledger. The caller's session; never a commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost import FenceToken
from ledger.models import Plan
from ledger.policy import Violation


def record(
    session: Session,
    token: FenceToken,
    *,
    attempt_id: UUID,
    turn: int,
    model: str,
    answer: dict[str, Any],
    violations: Sequence[Violation],
    tokens_in: int,
    tokens_out: int,
) -> None:
    """Keep one answer.

    Args:
        session: The caller's.
        token: Of the planning step; its key and the turn identify the answer.
        attempt_id: The attempt that failed.
        turn: From 1; grows when the planner is asked again.
        model: The model's name, as the provider reports it.
        answer: The plan, or what came instead of one, as JSON.
        violations: Why it was refused; empty if it was accepted.
        tokens_in: Prompt tokens of the calls that led to this answer.
        tokens_out: Completion tokens of the same calls.

    Raises:
        sqlalchemy.exc.IntegrityError: This turn is on record already.
    """
    session.add(
        Plan(
            attempt_id=attempt_id,
            step_key=token.step_key,
            turn=turn,
            epoch=token.epoch,
            model=model,
            answer=answer,
            accepted=not violations,
            violations=[
                {"code": v.code, "field": v.field, "message": v.message} for v in violations
            ],
            tokens_in=tokens_in,
            tokens_out=tokens_out,
        )
    )
    session.flush()


def of_attempt(session: Session, attempt_id: UUID) -> list[Plan]:
    """All answers about a failed attempt, in order."""
    query = sa.select(Plan).where(Plan.attempt_id == attempt_id)
    return list(session.scalars(query.order_by(Plan.recorded_at, Plan.turn)))
