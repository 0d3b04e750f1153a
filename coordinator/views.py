"""What people want to know about a release, read from the stores: plain data, no layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from ledger import artifacts, diagnostics, locks, plans, promotions
from ledger.models import ArtifactStatus, Attempt, AttestationStatus, Plan
from ledger.planner_records import ModelCall
from ledger.staging import StagingStore

TAIL_LINES = 3


@dataclass(frozen=True, slots=True)
class GateView:
    """What the integration check of an attempt did.

    Attributes:
        reason: The last lines that the check wrote to its standard error. Untrusted text.
    """

    passed: bool
    exit_code: int | None
    duration_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class TracesView:
    """What is left of an attempt.

    Attributes:
        artifacts: Rows, by status.
        attestations: Rows, by status.
        files: In the attempt's staging folder.
        lock: The execution that holds the release's candidate lock.
        promotions: Rows of this attempt.
    """

    artifacts: dict[str, int]
    attestations: dict[str, int]
    files: int
    lock: UUID | None
    promotions: int

    @property
    def active(self) -> int:
        """Rows and files that would still count."""
        rows = (
            count
            for status, count in [*self.artifacts.items(), *self.attestations.items()]
            if status != ArtifactStatus.COMPENSATED
        )
        return sum(rows) + self.files + self.promotions


@dataclass(frozen=True, slots=True)
class PlanView:
    """The plan that was accepted for the next attempt. Its texts come from a model."""

    root_cause: str
    explanation: str
    added_flags: list[str]
    removed_flags: list[str]
    model: str
    tokens_in: int
    tokens_out: int
    calls: int
    refused: int


def gate_of(session: Session, attempt_id: UUID) -> GateView | None:
    """The evidence of an attempt's gate; None before it was checked."""
    found = diagnostics.of_attempt(session, attempt_id)
    if not found:
        return None
    row = found[-1]
    told = [line for line in row.stderr.splitlines() if line.strip()]
    return GateView(row.passed, row.exit_code, row.duration_ms, "\n".join(told[-TAIL_LINES:]))


def traces_of(session: Session, staging: StagingStore, attempt: Attempt) -> TracesView:
    """What is left of an attempt on disk and in the ledger."""
    staged = artifacts.of_attempt(session, attempt.execution_id)
    statements = artifacts.attestations(session, attempt.execution_id)
    folder = staging.folder_for(attempt.lineage_id, attempt.attempt)
    holder = locks.holder(session, attempt.release)
    out = promotions.of_release(session, attempt.release, attempt.version)
    return TracesView(
        artifacts=_counted(staged, ArtifactStatus),
        attestations=_counted(statements, AttestationStatus),
        files=len(list(staging.files(folder))),
        lock=None if holder is None else holder.execution_id,
        promotions=sum(row.attempt_id == attempt.execution_id for row in out),
    )


def _counted(rows: Any, statuses: Any) -> dict[str, int]:
    counts = {str(status): sum(row.status is status for row in rows) for status in statuses}
    return {status: count for status, count in counts.items() if count}


def plan_of(session: Session, attempt_id: UUID) -> PlanView | None:
    """The accepted plan that followed a failed attempt; None if there is none."""
    answers = plans.of_attempt(session, attempt_id)
    accepted = [answer for answer in answers if answer.accepted]
    if not accepted:
        return None
    plan = accepted[-1]
    tokens_in, tokens_out, calls = _cost(session, plan)
    return PlanView(
        root_cause=plan.answer["root_cause"],
        explanation=plan.answer.get("explanation", ""),
        added_flags=list(plan.answer.get("added_flags", ())),
        removed_flags=list(plan.answer.get("removed_flags", ())),
        model=plan.model,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        calls=calls,
        refused=len(answers) - len(accepted),
    )


def _cost(session: Session, plan: Plan) -> tuple[int, int, int]:
    query = sa.select(
        sa.func.coalesce(sa.func.sum(ModelCall.tokens_in), 0),
        sa.func.coalesce(sa.func.sum(ModelCall.tokens_out), 0),
        sa.func.count().filter(ModelCall.kind == "model"),
    ).where(ModelCall.step_key == plan.step_key)
    tokens_in, tokens_out, calls = session.execute(query).one()
    return int(tokens_in), int(tokens_out), int(calls)
