"""Run by Alembic inside `fencepost.stores.sql.migrate`, on its connection."""

from alembic import context

from fencepost.stores.sql.migrate import VERSION_TABLE
from fencepost.stores.sql.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
context.run_migrations()
