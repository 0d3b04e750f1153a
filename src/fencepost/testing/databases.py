"""Databases of tests: emptied before each one, at an address that stays the same."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.testing.servers import PostgresServer

BUSY_SECONDS = 10.0
ROWS_AT_ONCE = 500


def clean_postgres(server: PostgresServer) -> str:
    """Give the server's database Fencepost's tables and nothing else; returns its URL.

    The database itself stays, so that connections which your code keeps open stay good. Sessions
    in the middle of a transaction are ended.
    """
    import psycopg

    from fencepost.stores.sql import migrate

    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"SET lock_timeout = '{BUSY_SECONDS:g}s'")
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'"
        )
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    migrate(server.url)
    return server.url


def clean_sqlite(path: Path) -> str:
    """Give a database file Fencepost's tables and nothing else; returns its URL."""
    from fencepost.stores.sql import migrate

    pattern = path.with_name(f"{path.name}.pattern")
    if not pattern.exists():
        migrate(f"sqlite:///{pattern}")
    # A copy into the file, not of the file: whoever has it open goes on with what is in it now.
    with (
        contextlib.closing(sqlite3.connect(pattern)) as source,
        contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as target,
    ):
        source.backup(target)
    return f"sqlite:///{path}"


def close_pools() -> None:
    """Close the idle database connections of every Fencepost that this process has installed."""
    application = sys.modules.get("fencepost.celery.application")
    for fencepost in getattr(application, "_installed", ()):
        if fencepost._engine is not None:  # noqa: SLF001 - asking for it would connect
            fencepost.database.dispose()


def copy_ledger(database_url: str, path: Path) -> None:
    """Copy Fencepost's tables into a SQLite file, which every `fencepost` command can read.

    Args:
        database_url: Whose.
        path: Of a new file.
    """
    from fencepost.stores.sql import create_engine, migrate
    from fencepost.stores.sql.schema import metadata

    migrate(f"sqlite:///{path}")
    source, target = create_engine(database_url), create_engine(f"sqlite:///{path}")
    try:
        with source.connect() as read, target.begin() as write:
            for table in metadata.sorted_tables:
                for rows in read.execute(table.select()).mappings().partitions(ROWS_AT_ONCE):
                    write.execute(table.insert(), [dict(row) for row in rows])
    finally:
        source.dispose()
        target.dispose()
