"""Effects.

Revision: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

from fencepost.stores.sql.types import Json, UtcDateTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fencepost_effects",
        sa.Column("sink", sa.String(length=100), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("step_key", sa.String(length=255), nullable=False),
        sa.Column("effect", sa.String(length=100), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("resource", sa.String(length=255), nullable=False),
        sa.Column("request", Json, nullable=True),
        sa.Column("request_digest", sa.String(length=80), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("result", Json, nullable=True),
        sa.Column("error", Json, nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("first_call_at", UtcDateTime(), nullable=False),
        sa.Column("last_call_at", UtcDateTime(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("confirmed_at", UtcDateTime(), nullable=True),
        sa.Column("resolution", Json, nullable=True),
        sa.PrimaryKeyConstraint("sink", "key", name=op.f("pk_fencepost_effects")),
        sa.ForeignKeyConstraint(
            ["execution_id"],
            ["fencepost_executions.execution_id"],
            name=op.f("fk_fencepost_effects_execution_id"),
        ),
    )
    for column in ("execution_id", "status"):
        op.create_index(op.f(f"ix_fencepost_effects_{column}"), "fencepost_effects", [column])


def downgrade() -> None:
    op.drop_table("fencepost_effects")
