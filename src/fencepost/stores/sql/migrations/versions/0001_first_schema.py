"""The first schema.

Revision: 0001
Revises: nothing
"""

import sqlalchemy as sa
from alembic import op

from fencepost.stores.sql.types import Json, UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fencepost_events",
        sa.Column(
            "event_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("current_epoch", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("current_owner", sa.String(length=255), nullable=True),
        sa.Column("step_key", sa.String(length=255), nullable=True),
        sa.Column("sink", sa.String(length=100), nullable=True),
        sa.Column("payload_digest", sa.String(length=80), nullable=True),
        sa.Column("details", Json, nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_fencepost_events")),
    )
    op.create_index(
        op.f("ix_fencepost_events_execution_id"), "fencepost_events", ["execution_id"], unique=False
    )
    op.create_table(
        "fencepost_executions",
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("saga", sa.String(length=100), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("business_key", sa.String(length=255), nullable=True),
        sa.Column("input", Json, nullable=True),
        sa.Column("input_digest", sa.String(length=80), nullable=False),
        sa.Column("lineage_id", sa.Uuid(), nullable=False),
        sa.Column("root_id", sa.Uuid(), nullable=False),
        sa.Column("parent_id", sa.Uuid(), nullable=True),
        sa.Column("parent_step", sa.String(length=100), nullable=True),
        sa.Column("parent_visit", sa.Integer(), nullable=True),
        sa.Column("child_index", sa.Integer(), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("head", sa.Uuid(), nullable=False),
        sa.Column("head_seq", sa.Integer(), nullable=False),
        sa.Column("recoveries", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("max_concurrency", sa.Integer(), nullable=True),
        sa.Column("result", Json, nullable=True),
        sa.Column("error", Json, nullable=True),
        sa.Column("parked_reason", sa.Text(), nullable=True),
        sa.Column("due_at", UtcDateTime(), nullable=True),
        sa.Column("dispatches", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("execution_id", name=op.f("pk_fencepost_executions")),
        sa.UniqueConstraint(
            "saga", "business_key", name=op.f("uq_fencepost_executions_saga_business_key")
        ),
    )
    op.create_index(
        "ix_fencepost_executions_parent_id_status",
        "fencepost_executions",
        ["parent_id", "status"],
        unique=False,
    )
    op.create_index(
        op.f("ix_fencepost_executions_root_id"), "fencepost_executions", ["root_id"], unique=False
    )
    op.create_index(
        "ix_fencepost_executions_status_due_at",
        "fencepost_executions",
        ["status", "due_at"],
        unique=False,
    )
    op.create_table(
        "fencepost_checkpoints",
        sa.Column("checkpoint_id", sa.Uuid(), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("parent_checkpoint_id", sa.Uuid(), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("step", sa.String(length=100), nullable=False),
        sa.Column("visit", sa.Integer(), nullable=False),
        sa.Column("step_key", sa.String(length=255), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("result", Json, nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["execution_id"],
            ["fencepost_executions.execution_id"],
            name=op.f("fk_fencepost_checkpoints_execution_id"),
        ),
        sa.PrimaryKeyConstraint("checkpoint_id", name=op.f("pk_fencepost_checkpoints")),
        sa.UniqueConstraint(
            "execution_id", "seq", name=op.f("uq_fencepost_checkpoints_execution_id_seq")
        ),
        sa.UniqueConstraint(
            "parent_checkpoint_id", name=op.f("uq_fencepost_checkpoints_parent_checkpoint_id")
        ),
        sa.UniqueConstraint(
            "step_key", "kind", name=op.f("uq_fencepost_checkpoints_step_key_kind")
        ),
    )


def downgrade() -> None:
    op.drop_table("fencepost_checkpoints")
    op.drop_table("fencepost_executions")
    op.drop_table("fencepost_events")
