"""The tables of fenced SQL sinks, for any database: publish `metadata` to Alembic, or create them.

With Alembic: `target_metadata = [your_metadata, fencepost.sinks.tables.metadata]`.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from fencepost.sinks.contract import NAME_LIMIT

metadata = sa.MetaData()

_Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
_When = sa.DateTime(timezone=True)
# A resource or key, and before it the name of who may see it (see `sinks.asgi`).
_Name = sa.String(2 * NAME_LIMIT)

fences = sa.Table(
    "fencepost_fences",
    metadata,
    sa.Column("resource", _Name, primary_key=True),
    sa.Column("execution_id", sa.Uuid, primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("advanced_at", _When, nullable=False, server_default=sa.func.current_timestamp()),
)
"""The marks: the highest epoch seen, for each resource and execution."""

applied = sa.Table(
    "fencepost_applied",
    metadata,
    sa.Column("resource", _Name, primary_key=True),
    sa.Column("key", sa.String(NAME_LIMIT), primary_key=True),
    sa.Column("execution_id", sa.Uuid),
    sa.Column("epoch", sa.BigInteger),
    sa.Column("owner", sa.Text),
    sa.Column("digest", sa.String(100)),
    sa.Column("result", _Json),
    sa.Column("applied_at", _When, nullable=False, server_default=sa.func.current_timestamp()),
)
"""The keys that have been applied, each with its first result."""

refusals = sa.Table(
    "fencepost_refusals",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("resource", _Name, nullable=False, index=True),
    sa.Column("execution_id", sa.Uuid, nullable=False),
    sa.Column("held", sa.BigInteger, nullable=False),
    sa.Column("current", sa.BigInteger, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("current_owner", sa.Text, nullable=False),
    sa.Column("key", sa.String(NAME_LIMIT)),
    sa.Column("digest", sa.String(100)),
    sa.Column("refused_at", _When, nullable=False, server_default=sa.func.current_timestamp()),
)
"""Stale writes that were refused. Only a record: nothing depends on it."""


def create_tables(bind: sa.Engine | sa.Connection) -> None:
    """Create the tables that aren't there yet."""
    metadata.create_all(bind)
