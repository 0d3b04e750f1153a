"""The stores in memory keep the contracts, and their time is the test's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from fencepost.records import Acquired
from fencepost.stores.memory import MemoryExecutionStore, MemoryLeaseStore, MemorySession
from tests.conformance.execution_store import ExecutionStoreConformance
from tests.conformance.lease_store import LeaseStoreConformance
from tests.conformance.support import LATER, acquirable, new_execution, signal_for, started


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

    @pytest.fixture
    def passed(self, store):
        def passed(execution_id, column):
            with store.locked() as (tables, now, at):
                row = tables.rows[execution_id]
                row.update(**{column: at - timedelta(minutes=1)})
                if column != "deadline_at":
                    row.due_at = now - 60

        return passed


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


class TestTheExecutionStoresTime:
    """Nothing becomes due but by the given clock, and then to the moment."""

    @pytest.fixture
    def clock(self):
        return Clock()

    @pytest.fixture
    def store(self, clock):
        return MemoryExecutionStore(clock=clock)

    def test_a_wait_ends_when_its_time_has_come(self, clock, store):
        worker = started(store)
        worker.waits(wake_in=timedelta(seconds=10))
        assert worker.execution.wake_at == datetime.fromtimestamp(1010, UTC)
        clock.now = 1009.999
        assert store.claim_waiting(1, LATER) == []
        assert not acquirable(store, worker.execution_id)
        clock.now = 1010.0
        assert store.claim_waiting(1, LATER) == [worker.execution]
        acquired = store.acquire(worker.execution_id, "b", 2, LATER)
        assert isinstance(acquired, Acquired)
        assert acquired.at == datetime.fromtimestamp(1010, UTC)

    def test_a_moment_is_as_good_as_a_length(self, clock, store):
        worker = started(store)
        worker.waits(wake_at=datetime.fromtimestamp(1500, UTC), waits_for="approved")
        clock.now = 1499.0
        assert store.claim_waiting(1, LATER) == []
        clock.now = 1500.0
        assert store.claim_waiting(1, LATER) == [worker.execution]

    def test_a_wait_for_a_signal_alone_is_never_due(self, clock, store):
        worker = started(store)
        worker.waits(waits_for="approved")
        clock.now += 1e9
        assert store.claim_waiting(1, LATER) == store.claim_due(1, LATER) == []
        store.send_signal(signal_for(worker.execution_id))
        assert store.claim_waiting(1, LATER) == [worker.execution]

    def test_a_deadline_passes_at_its_moment(self, clock, store):
        worker = started(store, new_execution(deadline_in=timedelta(seconds=10)))
        clock.now = 1009.999
        assert store.overdue(1) == []
        clock.now = 1010.0
        assert store.overdue(1) == [worker.execution]

    def test_a_pause_does_not_lengthen_a_failed_attempts_delay(self, clock, store):
        worker = started(store)
        store.record_attempt(worker.token(), 1, {}, timedelta(seconds=10))
        store.pause(worker.execution_id, by="ann", why="lunch")
        clock.now = 1005.0
        assert store.resume(worker.execution_id, by="ann", why="coffee") == []
        store.pause(worker.execution_id, by="ann", why="tea")
        clock.now = 1020.0
        assert store.resume(worker.execution_id, by="ann", why="work") == [worker.execution]
