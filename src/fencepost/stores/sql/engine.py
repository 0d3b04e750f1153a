"""Database engines, set up for the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc

from fencepost.errors import ConfigurationError, ServiceUnavailableError
from fencepost.stores.sql import forks

BUSY_TIMEOUT = timedelta(seconds=10)
"""How long SQLite waits for another process's write before it gives up."""

READ = {"fencepost_read": True}
"""Execution option of a connection that only reads: SQLite then takes no write lock."""


def create_engine(
    url: str, *, idle_in_transaction: timedelta = timedelta(seconds=30), pool_size: int = 5
) -> sa.Engine:
    """An engine for PostgreSQL or SQLite.

    Args:
        url: SQLAlchemy URL, such as `postgresql+psycopg://user:password@host/db` or
            `sqlite:////var/lib/app/fencepost.db`. SQLite is for a single host.
        idle_in_transaction: After this long PostgreSQL ends a transaction whose client does
            nothing, or takes no more of an answer (over TCP), so that a frozen worker can't hold
            its locks for longer.
        pool_size: Connections kept by each process.

    Raises:
        ConfigurationError: The URL can't be read, or names another database.
    """
    parsed = _parse(url)
    match parsed.get_backend_name():
        case "postgresql":
            return _postgresql(parsed, idle_in_transaction, pool_size)
        case "sqlite":
            return _sqlite(parsed, pool_size)
        case other:
            raise ConfigurationError(
                f"{other} is not supported: use postgresql+psycopg:// or sqlite:///"
            )


def _parse(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except exc.ArgumentError as problem:
        raise ConfigurationError(
            "the database URL can't be read; it should look like"
            " postgresql+psycopg://user:password@host/db or sqlite:///file.db"
        ) from problem
    if parsed.drivername in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    return parsed


def _postgresql(url: sa.URL, idle_in_transaction: timedelta, pool_size: int) -> sa.Engine:
    try:
        engine = sa.create_engine(
            url,
            # Single statements commit by themselves: one round trip, nothing left open.
            isolation_level="AUTOCOMMIT",
            pool_size=pool_size,
            max_overflow=pool_size,
            connect_args={
                "connect_timeout": 10,
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                # What was sent and never acknowledged: else the kernel tries for a quarter hour.
                "tcp_user_timeout": 20_000,
                "application_name": "fencepost",
                # Preparing on the server takes a round trip more, once in a while, and breaks
                # behind poolers and after a migration.
                "prepare_threshold": None,
            },
        )
    except ModuleNotFoundError as problem:
        raise ConfigurationError(
            "the PostgreSQL driver is not installed: pip install 'fencepost[postgres]'"
        ) from problem
    milliseconds = int(idle_in_transaction.total_seconds() * 1000)

    @event.listens_for(engine, "connect")
    def set_timeouts(connection: Any, _record: Any) -> None:
        previous, connection.autocommit = connection.autocommit, True
        connection.execute(f"SET idle_in_transaction_session_timeout = {milliseconds}")
        # A server that can't get rid of an answer isn't idle: it would wait for ever.
        connection.execute(f"SET tcp_user_timeout = {milliseconds}")
        connection.autocommit = previous

    return engine


def _sqlite(url: sa.URL, pool_size: int) -> sa.Engine:
    if url.database in (None, "", ":memory:"):
        raise ConfigurationError("SQLite needs a file: workers can't share a database in memory")
    engine = sa.create_engine(url, pool_size=pool_size, max_overflow=pool_size)
    forks.guard(engine)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT.total_seconds() * 1000)}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        reads = connection.get_execution_options().get("fencepost_read", False)
        # A deferred transaction that turns into a writer fails at once if another one wrote.
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


@contextmanager
def available(engine: sa.Engine) -> Iterator[None]:
    """Report a database that doesn't answer as `ServiceUnavailableError`, without secrets."""
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError) as problem:
        raise unavailable(engine, problem) from problem
    except exc.DBAPIError as problem:
        if problem.connection_invalidated:
            raise unavailable(engine, problem) from problem
        raise


def unavailable(engine: sa.Engine, problem: Exception) -> ServiceUnavailableError:
    """The error for a database that doesn't answer."""
    cause = getattr(problem, "orig", None) or problem
    first_line = str(cause).strip().partition("\n")[0]
    where = engine.url.render_as_string(hide_password=True)
    return ServiceUnavailableError(
        f"the database {where} doesn't answer: {first_line}", service="database", url=where
    )
