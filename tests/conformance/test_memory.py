"""The stores in memory keep the contracts, and their time is the test's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

import pytest

from fencepost.stores.memory import MemoryExecutionStore, MemoryLeaseStore, MemorySession
from tests.conformance.execution_store import ExecutionStoreConformance
from tests.conformance.lease_store import LeaseStoreConformance


class TestMemoryLeaseStore(LeaseStoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryLeaseStore()

    @pytest.fixture
    def lose_everything(self, store):
        return store.flush


class MemoryLedger:
    """Effects are whatever committed sessions have added."""

    def __init__(self, store: MemoryExecutionStore) -> None:
        self._store = store

    @contextmanager
    def session(self) -> Iterator[MemorySession]:
        yield self._store.session()

    def write(self, session: MemorySession, name: str) -> None:
        session.add(name)

    def written(self) -> list[str]:
        return sorted(self._store.added)


class TestMemoryExecutionStore(ExecutionStoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryExecutionStore()

    @pytest.fixture
    def ledger(self, store):
        return MemoryLedger(store)


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_leases_expire_by_the_given_clock_alone():
    clock = Clock()
    store = MemoryLeaseStore(clock=clock)
    ttl = timedelta(seconds=10)
    lease = store.acquire(uuid4(), "a", ttl)
    assert lease is not None
    assert lease.deadline == pytest.approx(1009.0)
    clock.now += 9.999
    assert store.acquire(lease.execution_id, "b", ttl) is None
    assert store.claim_expired(1, ttl) == []
    clock.now += 0.001
    assert store.claim_expired(1, ttl) == [lease.execution_id]
    assert store.acquire(lease.execution_id, "b", ttl) is not None


def test_the_holders_clock_may_be_another():
    clock, holder_clock = Clock(), Clock()
    holder_clock.now = 5.0
    store = MemoryLeaseStore(clock=clock, holder_clock=holder_clock, margin=0.5)
    lease = store.acquire(uuid4(), "a", timedelta(seconds=10))
    assert lease is not None
    assert lease.deadline == pytest.approx(10.0)
