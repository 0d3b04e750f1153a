"""The planner's journal: every model call and tool call, recorded before its answer is used."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from ledger.models import STEP_KEY_LENGTH, Base, now


class CallKind(StrEnum):
    """What was called. `GIVEN_UP` closes a conversation that led to no plan."""

    MODEL = "model"
    TOOL = "tool"
    GIVEN_UP = "given-up"


class ModelCall(Base):
    """One call with its answer; a repeated run of the step uses the answer that is here.

    `seq` counts the calls of a step from 1. `conversation` grows when a person lets a step that
    had given up try again: it must not be given the old answers then. A refused write of a
    zombie's meets the unique constraints: the first answer stays.
    """

    __tablename__ = "ledger_model_calls"
    __table_args__ = (
        sa.UniqueConstraint("step_key", "seq"),
        sa.UniqueConstraint(
            "step_key",
            "conversation",
            "request_digest",
            name="uq_ledger_model_calls_request",
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[UUID] = mapped_column(
        sa.ForeignKey("ledger_attempts.execution_id"), index=True
    )
    step_key: Mapped[str] = mapped_column(sa.String(STEP_KEY_LENGTH))
    seq: Mapped[int]
    conversation: Mapped[int]
    kind: Mapped[str] = mapped_column(sa.String(16))
    name: Mapped[str]
    request_digest: Mapped[str] = mapped_column(sa.String(80))
    request: Mapped[dict[str, Any]]
    answer: Mapped[dict[str, Any]]
    tokens_in: Mapped[int]
    tokens_out: Mapped[int]
    epoch: Mapped[int]
    recorded_at: Mapped[datetime] = mapped_column(default=now)
