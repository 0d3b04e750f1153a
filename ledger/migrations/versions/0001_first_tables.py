"""Attempts, artifacts, attestations, diagnostics, candidate locks, promotions, plans."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ledger_attempts",
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("lineage_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("release", sa.String(length=64), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("flags", sa.JSON(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "ACTIVE",
                "COMPENSATED",
                "PROMOTED",
                name="ledger_attempts_status",
                native_enum=False,
                create_constraint=True,
                length=16,
            ),
            nullable=False,
        ),
        sa.Column("step_key", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("execution_id", name=op.f("pk_ledger_attempts")),
        sa.UniqueConstraint(
            "lineage_id", "attempt", name=op.f("uq_ledger_attempts_lineage_id_attempt")
        ),
        sa.UniqueConstraint("step_key", name=op.f("uq_ledger_attempts_step_key")),
    )
    op.create_index(
        op.f("ix_ledger_attempts_release"), "ledger_attempts", ["release"], unique=False
    )
    op.create_table(
        "ledger_candidate_locks",
        sa.Column("release", sa.String(length=64), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("lineage_id", sa.Uuid(), nullable=False),
        sa.Column("step_key", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("acquired_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("release", name=op.f("pk_ledger_candidate_locks")),
    )
    op.create_table(
        "ledger_artifacts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("module", sa.String(length=64), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("step_key", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "STAGED",
                "COMPENSATED",
                "PROMOTED",
                name="ledger_artifacts_status",
                native_enum=False,
                create_constraint=True,
                length=16,
            ),
            nullable=False,
        ),
        sa.Column("staged_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"],
            ["ledger_attempts.execution_id"],
            name=op.f("fk_ledger_artifacts_attempt_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_artifacts")),
    )
    op.create_index(
        op.f("ix_ledger_artifacts_attempt_id"), "ledger_artifacts", ["attempt_id"], unique=False
    )
    op.create_index("uq_ledger_artifacts_step_key", "ledger_artifacts", ["step_key"], unique=True)
    op.create_table(
        "ledger_attestations",
        sa.Column("step_key", sa.String(length=255), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("module", sa.String(length=64), nullable=False),
        sa.Column("artifact_step_key", sa.String(length=255), nullable=False),
        sa.Column("statement", sa.JSON(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "ACTIVE",
                "COMPENSATED",
                name="ledger_attestations_status",
                native_enum=False,
                create_constraint=True,
                length=16,
            ),
            nullable=False,
        ),
        sa.Column("attested_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"],
            ["ledger_attempts.execution_id"],
            name=op.f("fk_ledger_attestations_attempt_id"),
        ),
        sa.PrimaryKeyConstraint("step_key", name=op.f("pk_ledger_attestations")),
    )
    op.create_index(
        op.f("ix_ledger_attestations_attempt_id"),
        "ledger_attestations",
        ["attempt_id"],
        unique=False,
    )
    op.create_table(
        "ledger_diagnostics",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("step_key", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("command", sa.JSON(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("timed_out", sa.Boolean(), nullable=False),
        sa.Column("duration_ms", sa.Integer(), nullable=False),
        sa.Column("stdout", sa.Text(), nullable=False),
        sa.Column("stderr", sa.Text(), nullable=False),
        sa.Column("stdout_bytes", sa.BigInteger(), nullable=False),
        sa.Column("stderr_bytes", sa.BigInteger(), nullable=False),
        sa.Column("artifacts", sa.JSON(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"],
            ["ledger_attempts.execution_id"],
            name=op.f("fk_ledger_diagnostics_attempt_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_diagnostics")),
        sa.UniqueConstraint("step_key", name=op.f("uq_ledger_diagnostics_step_key")),
    )
    op.create_index(
        op.f("ix_ledger_diagnostics_attempt_id"), "ledger_diagnostics", ["attempt_id"], unique=False
    )
    op.create_table(
        "ledger_plans",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("step_key", sa.String(length=255), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("accepted", sa.Boolean(), nullable=False),
        sa.Column("violations", sa.JSON(), nullable=False),
        sa.Column("tokens_in", sa.Integer(), nullable=False),
        sa.Column("tokens_out", sa.Integer(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"],
            ["ledger_attempts.execution_id"],
            name=op.f("fk_ledger_plans_attempt_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_plans")),
        sa.UniqueConstraint("step_key", "turn", name=op.f("uq_ledger_plans_step_key_turn")),
    )
    op.create_index(
        op.f("ix_ledger_plans_attempt_id"), "ledger_plans", ["attempt_id"], unique=False
    )
    op.create_table(
        "ledger_promotions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("release", sa.String(length=64), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("module", sa.String(length=64), nullable=False),
        sa.Column("module_version", sa.String(length=64), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("artifact_step_key", sa.String(length=255), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("step_key", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("promoted_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"],
            ["ledger_attempts.execution_id"],
            name=op.f("fk_ledger_promotions_attempt_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_promotions")),
        sa.UniqueConstraint(
            "release", "version", "module", name=op.f("uq_ledger_promotions_release_version_module")
        ),
    )
    op.create_index(
        op.f("ix_ledger_promotions_attempt_id"), "ledger_promotions", ["attempt_id"], unique=False
    )


def downgrade() -> None:
    op.drop_table("ledger_promotions")
    op.drop_table("ledger_plans")
    op.drop_table("ledger_diagnostics")
    op.drop_table("ledger_attestations")
    op.drop_table("ledger_artifacts")
    op.drop_table("ledger_candidate_locks")
    op.drop_table("ledger_attempts")
