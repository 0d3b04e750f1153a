"""Waiting, turning back, pausing, placement, signals and limits.

Revision: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

from fencepost.stores.sql.types import Json, UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

EXECUTIONS = "fencepost_executions"
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _columns() -> list[sa.Column[object]]:
    return [
        sa.Column("queue", sa.String(length=100), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False, server_default="5"),
        sa.Column("paused_at", UtcDateTime(), nullable=True),
        sa.Column("deadline_at", UtcDateTime(), nullable=True),
        sa.Column("wake_at", UtcDateTime(), nullable=True),
        sa.Column("waits_for", sa.String(length=100), nullable=True),
        sa.Column("wakes_at_failures", sa.Integer(), nullable=True),
        sa.Column("wakes_at_successes", sa.Integer(), nullable=True),
        sa.Column("turned_back", Json, nullable=True),
        sa.Column("directive", Json, nullable=True),
        sa.Column("forked_from", sa.Uuid(), nullable=True),
        sa.Column("fenced_owner", sa.String(length=255), nullable=True),
    ]


def _execution_id(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["execution_id"],
        ["fencepost_executions.execution_id"],
        name=op.f(f"fk_{table}_execution_id"),
    )


def upgrade() -> None:
    for column in _columns():
        op.add_column(EXECUTIONS, column)
    has_deadline = sa.text("deadline_at IS NOT NULL AND ended_at IS NULL")
    op.create_index(
        op.f("ix_fencepost_executions_deadline_at"),
        EXECUTIONS,
        ["deadline_at"],
        postgresql_where=has_deadline,
        sqlite_where=has_deadline,
    )
    op.create_table(
        "fencepost_signals",
        sa.Column("number", NUMBER, autoincrement=True, nullable=False),
        sa.Column("signal_id", sa.Uuid(), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=True),
        sa.Column("payload", Json, nullable=True),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("sent_at", UtcDateTime(), nullable=False),
        sa.Column("consumed_by", sa.String(length=255), nullable=True),
        sa.Column("rejected", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_fencepost_signals")),
        sa.UniqueConstraint("signal_id", name=op.f("uq_fencepost_signals_signal_id")),
        sa.UniqueConstraint(
            "execution_id", "name", "key", name=op.f("uq_fencepost_signals_execution_id_name_key")
        ),
        _execution_id("fencepost_signals"),
    )
    op.create_table(
        "fencepost_limits",
        sa.Column("resource", sa.String(length=255), nullable=False),
        sa.Column("next_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("resource", name=op.f("pk_fencepost_limits")),
    )
    op.create_table(
        "fencepost_permits",
        sa.Column("number", NUMBER, autoincrement=True, nullable=False),
        sa.Column("resource", sa.String(length=255), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("head", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("starts_at", UtcDateTime(), nullable=True),
        sa.Column("begun_at", UtcDateTime(), nullable=True),
        sa.Column("asked_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_fencepost_permits")),
        sa.UniqueConstraint(
            "resource", "execution_id", name=op.f("uq_fencepost_permits_resource_execution_id")
        ),
        _execution_id("fencepost_permits"),
    )
    op.create_index(op.f("ix_fencepost_permits_resource"), "fencepost_permits", ["resource"])


def downgrade() -> None:
    op.drop_table("fencepost_permits")
    op.drop_table("fencepost_limits")
    op.drop_table("fencepost_signals")
    op.drop_index(op.f("ix_fencepost_executions_deadline_at"), EXECUTIONS)
    with op.batch_alter_table(EXECUTIONS) as table:
        for column in _columns():
            table.drop_column(column.name)
