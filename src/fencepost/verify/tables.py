"""The stored tables, as far as the verifier reads them; written down a second time on purpose."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa

EXECUTIONS = sa.table(
    "fencepost_executions",
    sa.column("execution_id", sa.Uuid),
    sa.column("saga", sa.String),
    sa.column("version", sa.String),
    sa.column("business_key", sa.String),
    sa.column("lineage_id", sa.Uuid),
    sa.column("root_id", sa.Uuid),
    sa.column("parent_id", sa.Uuid),
    sa.column("parent_step", sa.String),
    sa.column("parent_visit", sa.Integer),
    sa.column("child_index", sa.Integer),
    sa.column("status", sa.String),
    sa.column("phase", sa.String),
    sa.column("epoch", sa.BigInteger),
    sa.column("owner", sa.String),
    sa.column("head", sa.Uuid),
    sa.column("head_seq", sa.Integer),
    sa.column("input", sa.JSON),
    sa.column("result", sa.JSON),
    sa.column("error", sa.JSON),
    sa.column("ended_at"),
    sa.column("paused_at"),
    sa.column("wake_at"),
    sa.column("waits_for", sa.String),
    sa.column("turned_back", sa.JSON),
    sa.column("forked_from", sa.Uuid),
)
DUE_AT: sa.ColumnClause[Any] = sa.column("due_at", _selectable=EXECUTIONS)

CHECKPOINTS = sa.table(
    "fencepost_checkpoints",
    sa.column("checkpoint_id", sa.Uuid),
    sa.column("execution_id", sa.Uuid),
    sa.column("seq", sa.Integer),
    sa.column("parent_checkpoint_id", sa.Uuid),
    sa.column("kind", sa.String),
    sa.column("step", sa.String),
    sa.column("visit", sa.Integer),
    sa.column("step_key", sa.String),
    sa.column("epoch", sa.BigInteger),
    sa.column("owner", sa.String),
    sa.column("result", sa.JSON),
    sa.column("created_at"),
)

EFFECTS = sa.table(
    "fencepost_effects",
    sa.column("sink", sa.String),
    sa.column("key", sa.String),
    sa.column("execution_id", sa.Uuid),
    sa.column("step_key", sa.String),
    sa.column("effect", sa.String),
    sa.column("kind", sa.String),
    sa.column("status", sa.String),
    sa.column("epoch", sa.BigInteger),
    sa.column("owner", sa.String),
    sa.column("confirmed_at"),
)
RESOLUTION: sa.ColumnClause[Any] = sa.column("resolution", _selectable=EFFECTS)

EVENTS = sa.table(
    "fencepost_events",
    sa.column("event_id", sa.BigInteger),
    sa.column("execution_id", sa.Uuid),
    sa.column("name", sa.String),
    sa.column("epoch", sa.BigInteger),
    sa.column("current_epoch", sa.BigInteger),
    sa.column("owner", sa.String),
    sa.column("current_owner", sa.String),
    sa.column("step_key", sa.String),
    sa.column("sink", sa.String),
    sa.column("payload_digest", sa.String),
    sa.column("details", sa.JSON),
    sa.column("at"),
)

EVERYTHING = UUID(int=0)
"""Under this id it is on record that runs were pruned; no execution has it."""

SIGNALS = sa.table(
    "fencepost_signals",
    sa.column("signal_id", sa.Uuid),
    sa.column("execution_id", sa.Uuid),
    sa.column("name", sa.String),
    sa.column("payload", sa.JSON),
    sa.column("consumed_by", sa.String),
    sa.column("rejected", sa.String),
)
SENT: sa.ColumnClause[Any] = sa.column("number", _selectable=SIGNALS)
