"""The ledger's tables. All names begin with `ledger_`; they share the engine's database."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

STEP_KEY_LENGTH = 255


class AttemptStatus(StrEnum):
    """One attempt at a release."""

    ACTIVE = "ACTIVE"
    COMPENSATED = "COMPENSATED"
    PROMOTED = "PROMOTED"


class ArtifactStatus(StrEnum):
    """One archive. `COMPENSATED` ones have no file any more."""

    STAGED = "STAGED"
    COMPENSATED = "COMPENSATED"
    PROMOTED = "PROMOTED"


class AttestationStatus(StrEnum):
    """One provenance statement."""

    ACTIVE = "ACTIVE"
    COMPENSATED = "COMPENSATED"


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A point in time; aware on both databases (SQLite stores no zone)."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Store UTC."""
        del dialect
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Read UTC."""
        del dialect
        return value if value is None or value.tzinfo else value.replace(tzinfo=UTC)


def _status(values: type[StrEnum], table: str) -> sa.Enum:
    return sa.Enum(
        values,
        native_enum=False,
        create_constraint=True,
        length=16,
        name=f"{table}_status",
        values_callable=lambda members: [member.value for member in members],
    )


def now() -> datetime:
    """The current time, in UTC. For people: no decision depends on it."""
    return datetime.now(UTC)


class Base(DeclarativeBase):
    """Names every constraint, so that migrations can change them on both databases."""

    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own declaration
        UUID: sa.Uuid(),
        datetime: UtcDateTime(),
        dict[str, Any]: sa.JSON(),
        list[Any]: sa.JSON(),
        str: sa.Text(),
    }


class Attempt(Base):
    """A release execution. `execution_id` is the attempt's id."""

    __tablename__ = "ledger_attempts"
    __table_args__ = (sa.UniqueConstraint("lineage_id", "attempt"),)

    execution_id: Mapped[UUID] = mapped_column(primary_key=True)
    lineage_id: Mapped[UUID]
    attempt: Mapped[int]
    release: Mapped[str] = mapped_column(sa.String(64), index=True)
    version: Mapped[str] = mapped_column(sa.String(64))
    flags: Mapped[list[Any]]
    request: Mapped[dict[str, Any]]
    status: Mapped[AttemptStatus] = mapped_column(_status(AttemptStatus, "ledger_attempts"))
    step_key: Mapped[str] = mapped_column(sa.String(STEP_KEY_LENGTH), unique=True)
    epoch: Mapped[int]
    opened_at: Mapped[datetime] = mapped_column(default=now)
    closed_at: Mapped[datetime | None]


class Artifact(Base):
    """An archive that a module's execution staged. The row makes the file visible."""

    __tablename__ = "ledger_artifacts"

    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[UUID] = mapped_column(
        sa.ForeignKey("ledger_attempts.execution_id"), index=True
    )
    module: Mapped[str] = mapped_column(sa.String(64))
    version: Mapped[str] = mapped_column(sa.String(64))
    execution_id: Mapped[UUID]
    step_key: Mapped[str] = mapped_column(sa.String(STEP_KEY_LENGTH))
    epoch: Mapped[int]
    path: Mapped[str]
    sha256: Mapped[str] = mapped_column(sa.String(64))
    size: Mapped[int] = mapped_column(sa.BigInteger)
    details: Mapped[dict[str, Any]]
    status: Mapped[ArtifactStatus] = mapped_column(_status(ArtifactStatus, "ledger_artifacts"))
    staged_at: Mapped[datetime] = mapped_column(default=now)
    closed_at: Mapped[datetime | None]


# An index of its own, and not a constraint: a demonstration without guards can drop it.
ARTIFACT_GUARD = sa.Index("uq_ledger_artifacts_step_key", Artifact.step_key, unique=True)


class Attestation(Base):
    """A provenance statement: from which sources, with which flags, an archive was made."""

    __tablename__ = "ledger_attestations"

    step_key: Mapped[str] = mapped_column(sa.String(STEP_KEY_LENGTH), primary_key=True)
    attempt_id: Mapped[UUID] = mapped_column(
        sa.ForeignKey("ledger_attempts.execution_id"), index=True
    )
    module: Mapped[str] = mapped_column(sa.String(64))
    artifact_step_key: Mapped[str] = mapped_column(sa.String(STEP_KEY_LENGTH))
    statement: Mapped[dict[str, Any]]
    sha256: Mapped[str] = mapped_column(sa.String(64))
    epoch: Mapped[int]
    status: Mapped[AttestationStatus] = mapped_column(
        _status(AttestationStatus, "ledger_attestations")
    )
    attested_at: Mapped[datetime] = mapped_column(default=now)


class Diagnostics(Base):
    """What an integration check did, passed or failed. The texts are redacted, and untrusted."""

    __tablename__ = "ledger_diagnostics"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    attempt_id: Mapped[UUID] = mapped_column(
        sa.ForeignKey("ledger_attempts.execution_id"), index=True
    )
    step_key: Mapped[str] = mapped_column(sa.String(STEP_KEY_LENGTH), unique=True)
    epoch: Mapped[int]
    passed: Mapped[bool]
    command: Mapped[list[Any]]
    exit_code: Mapped[int | None]
    timed_out: Mapped[bool]
    duration_ms: Mapped[int]
    stdout: Mapped[str]
    stderr: Mapped[str]
    stdout_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    stderr_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    artifacts: Mapped[list[Any]]
    recorded_at: Mapped[datetime] = mapped_column(default=now)


class CandidateLock(Base):
    """At most one candidate of a release at a time; the row is the lock."""

    __tablename__ = "ledger_candidate_locks"

    release: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    execution_id: Mapped[UUID]
    lineage_id: Mapped[UUID]
    step_key: Mapped[str] = mapped_column(sa.String(STEP_KEY_LENGTH))
    epoch: Mapped[int]
    acquired_at: Mapped[datetime] = mapped_column(default=now)


class Promotion(Base):
    """A module that is out. The rows of a release appear in one transaction."""

    __tablename__ = "ledger_promotions"
    __table_args__ = (sa.UniqueConstraint("release", "version", "module"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    release: Mapped[str] = mapped_column(sa.String(64))
    version: Mapped[str] = mapped_column(sa.String(64))
    module: Mapped[str] = mapped_column(sa.String(64))
    module_version: Mapped[str] = mapped_column(sa.String(64))
    attempt_id: Mapped[UUID] = mapped_column(
        sa.ForeignKey("ledger_attempts.execution_id"), index=True
    )
    artifact_step_key: Mapped[str] = mapped_column(sa.String(STEP_KEY_LENGTH))
    path: Mapped[str]
    sha256: Mapped[str] = mapped_column(sa.String(64))
    size: Mapped[int] = mapped_column(sa.BigInteger)
    step_key: Mapped[str] = mapped_column(sa.String(STEP_KEY_LENGTH))
    epoch: Mapped[int]
    promoted_at: Mapped[datetime] = mapped_column(default=now)


class Plan(Base):
    """One answer of the planner about a failed attempt, accepted or not."""

    __tablename__ = "ledger_plans"
    __table_args__ = (sa.UniqueConstraint("step_key", "turn"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[UUID] = mapped_column(
        sa.ForeignKey("ledger_attempts.execution_id"), index=True
    )
    step_key: Mapped[str] = mapped_column(sa.String(STEP_KEY_LENGTH))
    turn: Mapped[int]
    epoch: Mapped[int]
    model: Mapped[str]
    answer: Mapped[dict[str, Any]]
    accepted: Mapped[bool]
    violations: Mapped[list[Any]]
    tokens_in: Mapped[int]
    tokens_out: Mapped[int]
    recorded_at: Mapped[datetime] = mapped_column(default=now)
