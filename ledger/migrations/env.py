"""Alembic's entry: runs on the connection and in the transaction that `migrate` has opened."""

from __future__ import annotations

from alembic import context

from ledger import planner_records  # noqa: F401 - adds its table to the metadata
from ledger.migrations import VERSION_TABLE
from ledger.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=False,
)
context.run_migrations()
