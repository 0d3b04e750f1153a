"""Every sink of ours keeps to the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.testing import PostgresServer
from fencepost.testing.sinks import FencedSinkConformance
from tests.conformance.sinks.harnesses import (
    Boto3UnderTest,
    FilesUnderTest,
    MiddlewareUnderTest,
    ObjectsUnderTest,
    OwnTransactionsUnderTest,
    RedisUnderTest,
    ServerUnderTest,
    SqlUnderTest,
    prepare,
)


@pytest.fixture(scope="module")
def postgres(postgres_server: PostgresServer) -> str:
    """Another database than the ledger's. Every test has resources of its own."""
    postgres_server.start()
    url = postgres_server.create_database("sinks")
    prepare(url)
    return url


@pytest.fixture(scope="module")
def sqlite(memory_folder: Path) -> str:
    url = f"sqlite:///{memory_folder / 'other.sqlite3'}"
    prepare(url)
    return url


class TestPostgres(FencedSinkConformance):
    @pytest.fixture
    def sink(self, postgres):
        return SqlUnderTest(postgres)


class TestSqlite(FencedSinkConformance):
    @pytest.fixture
    def sink(self, sqlite):
        return SqlUnderTest(sqlite)


class TestOwnTransactionsPostgres(FencedSinkConformance):
    """On the ledger's engine, which commits each statement by itself unless told otherwise."""

    @pytest.fixture
    def sink(self, postgres):
        return OwnTransactionsUnderTest(postgres, ledgers=True)


class TestOwnTransactionsSqlite(FencedSinkConformance):
    @pytest.fixture
    def sink(self, sqlite):
        return OwnTransactionsUnderTest(sqlite, ledgers=True)


class TestRedis(FencedSinkConformance):
    @pytest.fixture
    def sink(self, redis_url):
        return RedisUnderTest(redis_url)


class TestFiles(FencedSinkConformance):
    @pytest.fixture
    def sink(self, memory_folder):
        return FilesUnderTest(memory_folder / "files")


class TestObjects(FencedSinkConformance):
    @pytest.fixture
    def sink(self, s3_url):
        return ObjectsUnderTest(s3_url)


class TestObjectsByBoto3(FencedSinkConformance):
    @pytest.fixture
    def sink(self, s3_url):
        return Boto3UnderTest(s3_url)


class TestMiddlewarePostgres(FencedSinkConformance):
    @pytest.fixture
    def sink(self, postgres):
        return MiddlewareUnderTest(postgres)


class TestMiddlewareSqlite(FencedSinkConformance):
    @pytest.fixture
    def sink(self, sqlite):
        return MiddlewareUnderTest(sqlite)


class TestServer(FencedSinkConformance):
    """Over HTTP, to a real server on PostgreSQL."""

    @pytest.fixture
    def sink(self, postgres, api_server):
        return ServerUnderTest(postgres, address=api_server)
