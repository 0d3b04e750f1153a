"""The planner's journal of model calls and tool calls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ledger_model_calls",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("step_key", sa.String(length=255), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("conversation", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.String(length=80), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("tokens_in", sa.Integer(), nullable=False),
        sa.Column("tokens_out", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"],
            ["ledger_attempts.execution_id"],
            name=op.f("fk_ledger_model_calls_attempt_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger_model_calls")),
        sa.UniqueConstraint(
            "step_key",
            "conversation",
            "request_digest",
            name=op.f("uq_ledger_model_calls_request"),
        ),
        sa.UniqueConstraint("step_key", "seq", name=op.f("uq_ledger_model_calls_step_key_seq")),
    )
    op.create_index(
        op.f("ix_ledger_model_calls_attempt_id"),
        "ledger_model_calls",
        ["attempt_id"],
        unique=False,
    )


def downgrade() -> None:
    op.drop_table("ledger_model_calls")
