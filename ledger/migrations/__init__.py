"""The schema's versions. Kept apart from the engine's in a version table of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from fencepost.errors import SchemaError, ServiceUnavailableError
from ledger.database import engine_for

VERSION_TABLE = "ledger_alembic_version"
_ADVISORY_LOCK = 0x46454E4345  # any constant that nobody else uses


def migrate(url: str) -> None:
    """Bring the ledger's tables to this version's schema; does nothing if they are there.

    Raises:
        ServiceUnavailableError: The database doesn't answer.
    """
    with _connection(url) as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def check(url: str) -> None:
    """Compare the database's schema version with this code's.

    Raises:
        SchemaError: They differ; says what to do.
        ServiceUnavailableError: The database doesn't answer.
    """
    with _connection(url, lock=False) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        current = context.get_current_revision()
    needed = ScriptDirectory.from_config(_config()).get_current_head()
    if current != needed:
        raise SchemaError(
            f"the ledger's tables are at {current or 'no version'}, this code needs {needed}:"
            " run `python -m ledger migrate`",
            current=current,
            needed=needed,
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@contextmanager
def _connection(url: str, *, lock: bool = True) -> Iterator[sa.Connection]:
    engine = engine_for(url)
    try:
        with engine.begin() as connection:
            if lock:
                _wait_for_turn(connection)
            yield connection
    except sa.exc.OperationalError as problem:
        raise ServiceUnavailableError(
            f"the ledger's database ({engine.url.render_as_string(hide_password=True)})"
            f" can't be used: {problem.orig}"
        ) from problem


def _wait_for_turn(connection: sa.Connection) -> None:
    # Two workers that migrate at once would both create the tables.
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        return
    driver = connection.connection.dbapi_connection
    driver.isolation_level = None  # type: ignore[union-attr]
    connection.exec_driver_sql("BEGIN IMMEDIATE")
