"""Real servers for all tests: one of each for the session, a clean state for each test.

A test that needs a server fails without it; it is never skipped.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.testing import PostgresServer, RedisServer, embedded_postgres, embedded_redis


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The session's Valkey. Use `redis_url` unless the test has to stop or kill it."""
    with embedded_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """An empty Valkey; a server that the previous test left dead is started again."""
    redis_server.start()
    redis_server.command("FLUSHALL")
    return redis_server.url


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The session's PostgreSQL. Use `postgres_url` unless the test has to stop or kill it."""
    folder = tmp_path_factory.mktemp("postgres")
    # Nothing has to survive a crash of the machine, and each test makes a database.
    settings = {"max_connections": "200"}
    with embedded_postgres(folder, fsync=False, settings=settings) as server:
        yield server


_numbers = itertools.count(1)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """SQLAlchemy URL of a new, empty database of the test's own."""
    postgres_server.start()
    name = f"test_{next(_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.start()
    postgres_server.drop_database(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """SQLAlchemy URL of a database file of the test's own; it does not exist yet."""
    return f"sqlite:///{tmp_path / 'fencepost.sqlite3'}"
