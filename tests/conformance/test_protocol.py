"""The stores in the combinations that are used together."""

from __future__ import annotations

import pytest
import redis

from fencepost.stores.memory import MemoryExecutionStore, MemoryLeaseStore
from fencepost.stores.redis import RedisLeaseStore
from fencepost.stores.sql import SqlExecutionStore
from tests.conformance.protocol import ProtocolConformance


class TestMemory(ProtocolConformance):
    @pytest.fixture
    def leases(self):
        return MemoryLeaseStore()

    @pytest.fixture
    def store(self):
        return MemoryExecutionStore()

    @pytest.fixture
    def lose_everything(self, leases):
        return leases.flush


class RedisProtocol(ProtocolConformance):
    @pytest.fixture
    def leases(self, redis_url):
        return RedisLeaseStore.from_url(redis_url)

    @pytest.fixture
    def lose_everything(self, redis_url):
        return redis.Redis.from_url(redis_url).flushall


class TestRedisWithPostgres(RedisProtocol):
    @pytest.fixture
    def store(self, postgres_engine):
        return SqlExecutionStore(postgres_engine)


class TestRedisWithSqlite(RedisProtocol):
    @pytest.fixture
    def store(self, sqlite_engine):
        return SqlExecutionStore(sqlite_engine)
