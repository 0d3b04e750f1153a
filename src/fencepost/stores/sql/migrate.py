"""The schema's migrations: applied by a command, checked when a worker starts."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from fencepost.errors import SchemaError
from fencepost.stores.sql.engine import READ, available, create_engine

VERSION_TABLE = "fencepost_alembic_version"
# Any fixed number does: two `migrate` commands at once must not both create tables.
ADVISORY_LOCK = 0x46454E4345


def migrate(database: str | sa.Engine) -> str:
    """Bring the engine's tables to this version; does nothing where they are.

    Args:
        database: A URL, or an engine from `create_engine`.

    Returns:
        The revision that the schema now has.

    Raises:
        ServiceUnavailableError: The database doesn't answer.
    """
    engine = create_engine(database) if isinstance(database, str) else database
    transactional = engine
    if engine.dialect.name == "postgresql":
        transactional = engine.execution_options(isolation_level="READ COMMITTED")
    with available(engine), transactional.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:n)"), {"n": ADVISORY_LOCK})
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return _head()


def check_schema(engine: sa.Engine) -> None:
    """Make sure that the schema is the one this version needs.

    Raises:
        SchemaError: It isn't; says which command mends it.
        ServiceUnavailableError: The database doesn't answer.
    """
    with available(engine), engine.connect() as plain:
        connection = plain.execution_options(**READ)
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        found = context.get_current_revision()
    wanted = _head()
    if found == wanted:
        return
    where = engine.url.render_as_string(hide_password=True)
    state = "has no Fencepost tables" if found is None else f"is at revision {found}"
    raise SchemaError(
        f"the database {where} {state}, and revision {wanted} is needed: run `fencepost migrate`",
        found=found,
        wanted=wanted,
    )


def _head() -> str:
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None  # the package ships at least one revision
    return head


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config
