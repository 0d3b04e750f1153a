"""The raced shop with whole workers."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any
from uuid import UUID

import redis

from fencepost import Handle, Status
from fencepost.effects import EffectRecord
from fencepost.records import Event, Execution
from fencepost.stores.sql import migrate
from tests.acceptance.races import books, worker
from tests.acceptance.races.bank import Bank, Banks
from tests.acceptance.races.shop import Money
from tests.support.fleet import Fault, Fleet

LEASE_TTL = 2.0
START_GRACE = 1.0
END_SECONDS = 30.0


class Shop:
    """A fleet with Fencepost, the providers, and what a race asks them.

    Args:
        folder: For logs and fault plans.
        database_url: An empty database.
        redis_url: Broker and leases.
        banks: The providers.
    """

    def __init__(self, folder: Path, database_url: str, redis_url: str, banks: Banks) -> None:
        migrate(database_url)
        self.banks = banks
        self.fp = worker.make(
            redis_url, database_url=database_url, lease_ttl=LEASE_TTL, start_grace=START_GRACE
        )
        books.books.create_all(self.fp.database)
        self.redis = redis.Redis.from_url(redis_url)
        environment = {
            **banks.environment,
            "RACES_BROKER": redis_url,
            "FENCEPOST_DATABASE_URL": database_url,
            "FENCEPOST_LEASE_TTL": str(LEASE_TTL),
            "FENCEPOST_START_GRACE": str(START_GRACE),
        }
        self.fleet = Fleet(folder, "tests.acceptance.races.worker", environment)

    def close(self) -> None:
        """End the workers and the connections."""
        self.fleet.stop()
        self.fp.database.dispose()
        self.redis.close()

    def refill(self, count: int) -> None:
        """Thaw all, forget faults, replace the dead."""
        self.fleet.disarm()
        for alive in self.fleet.alive:
            alive.signal_group(signal.SIGCONT)
        self.fleet.start(max(0, count - len(self.fleet.alive)))
        for alive in self.fleet.alive:
            alive.await_ready()

    def charged(self, mode: str, order: str, cents: int = 10_000) -> Bank:
        """The provider of this mode, where the order was paid for."""
        self.banks[mode].charge(order, cents)
        return self.banks[mode]

    def start(self, saga: Any, order: str, *, key: str | None = None, **money: Any) -> Handle[Any]:
        """Start an execution."""
        return self.fp.start(saga, Money(order=order, **money), key=key)

    def arm(self, point: str, action: str, order: str) -> Fault:
        """Something happens to the first worker that comes there with this order."""
        return self.fleet.arm(point, action, order=order)

    def succeeds(self, handle: Handle[Any], timeout: float = END_SECONDS) -> Any:
        """Wait for success; returns the stored result."""
        self.ends(handle, timeout)
        row = self.row(handle)
        assert row.status is Status.SUCCEEDED, (row, self.fleet.logs())
        return row.result

    def ends(self, handle: Handle[Any], timeout: float = END_SECONDS) -> Status:
        """Wait until it has ended or is parked."""
        try:
            return handle.wait(timeout).status
        except TimeoutError as late:
            raise AssertionError(f"{late}\n{self.row(handle)}\n{self.fleet.logs()}") from None

    def row(self, handle: Handle[Any]) -> Execution:
        """The execution as it is now."""
        found = self.fp.engine.executions.get(handle.execution_id)
        assert found is not None
        return found

    def effects(self, execution_id: UUID) -> list[EffectRecord]:
        """What is recorded of its effects."""
        return self.fp.engine.effects.of_execution(execution_id)

    def events(self, handle: Handle[Any], name: str) -> list[Event]:
        """Its audit events of one name."""
        events = self.fp.engine.executions.events([handle.execution_id])
        return [event for event in events if event.name == name]

    def logged(self, words: str) -> int:
        """How often the workers have printed this."""
        return sum(one.log().count(words) for one in self.fleet.workers)
