"""Migrated databases for the suites."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from fencepost.stores.sql import create_engine, migrate
from fencepost.testing import PostgresServer

# The suites are modules of their own; their assertions explain themselves like a test's.
for suite in (
    "commits",
    "deciding",
    "effect_store",
    "families",
    "joins",
    "lease_store",
    "limits",
    "line",
    "ownership",
    "placement",
    "protocol",
    "rates",
    "signals",
    "support",
    "sweeps",
    "transactions",
    "turning",
    "waits",
):
    pytest.register_assert_rewrite(f"tests.conformance.{suite}")


@pytest.fixture(scope="session")
def migrated_postgres_url(postgres_server: PostgresServer) -> str:
    """One database for all suites: making and migrating one takes longer than a test."""
    postgres_server.start()
    url = postgres_server.create_database("conformance")
    migrate(url)
    return url


@pytest.fixture
def postgres_engine(
    postgres_server: PostgresServer, migrated_postgres_url: str
) -> Iterator[sa.Engine]:
    """PostgreSQL with empty tables."""
    postgres_server.start()
    engine = create_engine(migrated_postgres_url, pool_size=20)
    tables = ", ".join(
        name for name in sa.inspect(engine).get_table_names() if "version" not in name
    )
    with engine.begin() as connection:
        connection.execute(sa.text(f"TRUNCATE {tables}"))
    yield engine
    engine.dispose()


@pytest.fixture
def sqlite_engine(sqlite_url: str) -> Iterator[sa.Engine]:
    """A new SQLite database."""
    migrate(sqlite_url)
    engine = create_engine(sqlite_url, pool_size=20)
    yield engine
    engine.dispose()
