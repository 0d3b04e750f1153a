"""The engine's tables. Their unique constraints make a forked chain impossible in itself."""

from __future__ import annotations

import sqlalchemy as sa

from fencepost.stores.sql.types import Json, UtcDateTime, now

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

HAS_DEADLINE = sa.text("deadline_at IS NOT NULL AND ended_at IS NULL")

executions = sa.Table(
    "fencepost_executions",
    metadata,
    sa.Column("execution_id", sa.Uuid, primary_key=True),
    sa.Column("saga", sa.String(100), nullable=False),
    sa.Column("version", sa.String(32), nullable=False),
    sa.Column("business_key", sa.String(255)),
    sa.Column("input", Json),
    sa.Column("input_digest", sa.String(80), nullable=False),
    sa.Column("lineage_id", sa.Uuid, nullable=False),
    sa.Column("root_id", sa.Uuid, nullable=False, index=True),
    sa.Column("parent_id", sa.Uuid),
    sa.Column("parent_step", sa.String(100)),
    sa.Column("parent_visit", sa.Integer),
    sa.Column("child_index", sa.Integer),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("phase", sa.String(16), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("owner", sa.String(255)),
    sa.Column("head", sa.Uuid, nullable=False),
    sa.Column("head_seq", sa.Integer, nullable=False),
    sa.Column("recoveries", sa.Integer, nullable=False, default=0),
    sa.Column("attempt", sa.Integer, nullable=False, default=0),
    sa.Column("max_concurrency", sa.Integer),
    sa.Column("result", Json),
    sa.Column("error", Json),
    sa.Column("parked_reason", sa.Text),
    # When the reaper looks at it again if nobody does anything; NULL for never.
    sa.Column("due_at", UtcDateTime),
    # Claims by the reaper since it was last acquired; each doubles the wait for the next.
    sa.Column("dispatches", sa.Integer, nullable=False, default=0),
    sa.Column("created_at", UtcDateTime, nullable=False, default=now()),
    sa.Column("ended_at", UtcDateTime),
    sa.Column("queue", sa.String(100)),
    sa.Column("priority", sa.Integer, nullable=False, default=5, server_default="5"),
    sa.Column("paused_at", UtcDateTime),
    sa.Column("deadline_at", UtcDateTime),
    sa.Column("wake_at", UtcDateTime),
    sa.Column("waits_for", sa.String(100)),
    # A parent that waits for children is woken by so many of them; NULL for all.
    sa.Column("wakes_at_failures", sa.Integer),
    sa.Column("wakes_at_successes", sa.Integer),
    sa.Column("turned_back", Json),
    sa.Column("directive", Json),
    sa.Column("forked_from", sa.Uuid),
    sa.Column("fenced_owner", sa.String(255)),
    sa.UniqueConstraint("saga", "business_key"),
    sa.Index("ix_fencepost_executions_status_due_at", "status", "due_at"),
    sa.Index("ix_fencepost_executions_parent_id_status", "parent_id", "status"),
    # Only what can still be overdue: the deadlines of all that has ended are not looked through.
    sa.Index(
        "ix_fencepost_executions_deadline_at",
        "deadline_at",
        postgresql_where=HAS_DEADLINE,
        sqlite_where=HAS_DEADLINE,
    ),
)

checkpoints = sa.Table(
    "fencepost_checkpoints",
    metadata,
    sa.Column("checkpoint_id", sa.Uuid, primary_key=True),
    sa.Column(
        "execution_id",
        sa.Uuid,
        sa.ForeignKey("fencepost_executions.execution_id"),
        nullable=False,
    ),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("parent_checkpoint_id", sa.Uuid),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("step", sa.String(100), nullable=False),
    sa.Column("visit", sa.Integer, nullable=False),
    sa.Column("step_key", sa.String(255), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("result", Json),
    sa.Column("created_at", UtcDateTime, nullable=False, default=now()),
    sa.UniqueConstraint("execution_id", "seq"),
    sa.UniqueConstraint("parent_checkpoint_id"),
    sa.UniqueConstraint("step_key", "kind"),
)

effects = sa.Table(
    "fencepost_effects",
    metadata,
    sa.Column("sink", sa.String(100), primary_key=True),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column(
        "execution_id",
        sa.Uuid,
        sa.ForeignKey("fencepost_executions.execution_id"),
        nullable=False,
        index=True,
    ),
    sa.Column("step_key", sa.String(255), nullable=False),
    sa.Column("effect", sa.String(100), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("resource", sa.String(255), nullable=False),
    sa.Column("request", Json),
    sa.Column("request_digest", sa.String(80), nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("result", Json),
    sa.Column("error", Json),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("calls", sa.Integer, nullable=False),
    sa.Column("first_call_at", UtcDateTime, nullable=False, default=now()),
    sa.Column("last_call_at", UtcDateTime, nullable=False, default=now()),
    sa.Column("created_at", UtcDateTime, nullable=False, default=now()),
    sa.Column("confirmed_at", UtcDateTime),
    sa.Column("resolution", Json),
)

events = sa.Table(
    "fencepost_events",
    metadata,
    sa.Column(
        "event_id",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("execution_id", sa.Uuid, nullable=False, index=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("current_epoch", sa.BigInteger),
    sa.Column("owner", sa.String(255)),
    sa.Column("current_owner", sa.String(255)),
    sa.Column("step_key", sa.String(255)),
    sa.Column("sink", sa.String(100)),
    sa.Column("payload_digest", sa.String(80)),
    sa.Column("details", Json, nullable=False),
    sa.Column("at", UtcDateTime, nullable=False, default=now()),
)

signals = sa.Table(
    "fencepost_signals",
    metadata,
    # Its order of arrival: the oldest is taken first.
    sa.Column(
        "number",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("signal_id", sa.Uuid, nullable=False, unique=True),
    sa.Column(
        "execution_id",
        sa.Uuid,
        sa.ForeignKey("fencepost_executions.execution_id"),
        nullable=False,
    ),
    sa.Column("name", sa.String(100), nullable=False),
    sa.Column("key", sa.String(255)),
    sa.Column("payload", Json),
    sa.Column("by", sa.String(255), nullable=False),
    sa.Column("sent_at", UtcDateTime, nullable=False, default=now()),
    sa.Column("consumed_by", sa.String(255)),
    sa.Column("rejected", sa.Text),
    sa.UniqueConstraint("execution_id", "name", "key"),
)

limits = sa.Table(
    "fencepost_limits",
    metadata,
    sa.Column("resource", sa.String(255), primary_key=True),
    # When the next of a rate-limited resource may begin at the earliest.
    sa.Column("next_at", UtcDateTime),
)

permits = sa.Table(
    "fencepost_permits",
    metadata,
    # The order in which they were asked for: the oldest is served first.
    sa.Column(
        "number",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("resource", sa.String(255), nullable=False, index=True),
    sa.Column(
        "execution_id",
        sa.Uuid,
        sa.ForeignKey("fencepost_executions.execution_id"),
        nullable=False,
    ),
    # What it was asked for at: a permit counts while the execution's row still says the same.
    sa.Column("head", sa.Uuid, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    # When its holder may begin; NULL while it waits for its turn.
    sa.Column("starts_at", UtcDateTime),
    # When its holder was told to begin; NULL while nobody has come for it.
    sa.Column("begun_at", UtcDateTime),
    # The last time: who doesn't ask again, isn't waited for.
    sa.Column("asked_at", UtcDateTime, nullable=False, default=now()),
    sa.UniqueConstraint("resource", "execution_id"),
)
