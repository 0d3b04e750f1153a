"""Short sessions of the factory's own, for steps that must read outside the fenced transaction."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from fencepost.errors import ConfigurationError, ServiceUnavailableError
from ledger.settings import FactorySettings

_POSTGRES = {"postgres", "postgresql"}
SQLITE_BUSY_SECONDS = 10


def normalize(url: str) -> sa.URL:
    """The URL with its driver: psycopg 3 where a PostgreSQL URL names none.

    Raises:
        ConfigurationError: Not a URL, or of another database.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as problem:
        raise ConfigurationError(
            f"FENCEPOST_DATABASE_URL {'is not a database URL' if url else 'is not set'}: it should"
            " look like sqlite:///var/fencepost.db or postgresql://user:password@host/name"
        ) from problem
    if parsed.drivername in _POSTGRES:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in {"postgresql", "sqlite"}:
        raise ConfigurationError(
            f"FENCEPOST_DATABASE_URL: {parsed.get_backend_name()} is not supported,"
            " use PostgreSQL or SQLite"
        )
    return parsed


@functools.lru_cache(maxsize=8)
def engine_for(url: str) -> sa.Engine:
    """An engine that keeps no connection open, so that it survives a fork.

    Raises:
        ConfigurationError: The URL can't be used, or its driver isn't installed.
    """
    parsed = normalize(url)
    if parsed.get_backend_name() != "sqlite":
        try:
            return sa.create_engine(parsed, poolclass=NullPool)
        except ModuleNotFoundError as problem:
            raise ConfigurationError(
                f"{parsed.drivername} needs a driver: pip install 'fencepost[postgres]'"
            ) from problem
    if parsed.database and parsed.database != ":memory:":
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(
        parsed, poolclass=NullPool, connect_args={"timeout": SQLITE_BUSY_SECONDS}
    )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    return engine


@contextmanager
def session(url: str | None = None) -> Iterator[Session]:
    """A session that commits when the block ends well.

    Args:
        url: The database; by default that of the settings.

    Raises:
        ServiceUnavailableError: The database doesn't answer.
    """
    engine = engine_for(url or FactorySettings().database_url)
    try:
        with Session(engine, expire_on_commit=False) as opened, opened.begin():
            yield opened
    except sa.exc.OperationalError as problem:
        raise ServiceUnavailableError(
            f"the ledger's database ({engine.url.render_as_string(hide_password=True)})"
            f" can't be used: {problem.orig}"
        ) from problem


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
