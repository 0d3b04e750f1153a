"""A fleet in this process: real engine, real SQL, and workers that are plain calls.

One message is delivered after the other, so that a test decides the order of everything. A zombie
is a delivery inside a step: `meanwhile` lets the lease run out there and another worker go on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import redis

from fencepost import faults
from fencepost.clock import seconds_alive
from fencepost.commands import Definition
from fencepost.engine import Engine, EngineOptions
from fencepost.engine.reaper import Reaper
from fencepost.engine.registry import Registry
from fencepost.errors import Suspended
from fencepost.ports import LeaseStore
from fencepost.records import Event, Execution, Status
from fencepost.stores.memory import MemoryLeaseStore
from fencepost.stores.redis import RedisLeaseStore
from fencepost.stores.sql import (
    SqlEffectStore,
    SqlExecutionStore,
    SqlLimitStore,
    create_engine,
    migrate,
)

DELIVERIES = 1_000
A_LONG_TIME = 3_600.0


class Died(BaseException):
    """What ends a delivery as SIGKILL ends a worker: nothing catches it, nothing is said."""


@dataclass(eq=False)
class Plan:
    """What happens at a crash point, the first time."""

    point: str
    match: dict[str, str]
    doing: Callable[[], None]
    fired: bool = False


class Inline:
    """Delivers what the engine dispatches.

    Args:
        database_url: An empty database; it is migrated here.
        sagas: What the workers know.
        redis_url: Where the leases are; by default in memory.
        **options: Fields of `EngineOptions`.
    """

    def __init__(
        self,
        database_url: str,
        sagas: Iterable[Definition],
        *,
        redis_url: str | None = None,
        **options: Any,
    ) -> None:
        migrate(database_url)
        self.database = create_engine(database_url)
        self.store = SqlExecutionStore(self.database)
        self.queue: deque[UUID] = deque()
        self._redis = redis.Redis.from_url(redis_url) if redis_url else None
        self._skipped = 0.0
        self._plans: list[Plan] = []
        self.engine = Engine(
            self.store,
            self._lease_store(redis_url),
            self,
            Registry(sagas),
            EngineOptions(**options),
            effects=SqlEffectStore(self.store),
            limits=SqlLimitStore(self.store),
        )

    def _lease_store(self, redis_url: str | None) -> LeaseStore:
        if redis_url is not None:
            return RedisLeaseStore.from_url(redis_url)
        return MemoryLeaseStore(
            clock=lambda: time.monotonic() + self._skipped, holder_clock=seconds_alive
        )

    # -- the transport ---------------------------------------------------------------------

    def dispatch(self, execution: Execution) -> None:
        self.queue.append(execution.execution_id)

    def fan_out(self, children: Sequence[Execution]) -> None:
        self.queue.extend(child.execution_id for child in children)

    # -- doing -----------------------------------------------------------------------------

    def start(self, saga: Definition, value: Any, *, key: str | None = None) -> UUID:
        execution, _ = self.engine.create(saga, value, key=key)
        self.dispatch(execution)
        return execution.execution_id

    def deliver(self, execution_id: UUID) -> None:
        """One message."""
        with suppress(Suspended, Died):
            self.engine.run(execution_id)

    def drain(self) -> None:
        """Deliver until nothing is left to do."""
        for _ in range(DELIVERIES):
            if not self.queue:
                self._make_due()
                Reaper(self.engine).waiting()
                Reaper(self.engine).due()
            if not self.queue:
                return
            self.deliver(self.queue.popleft())
        raise AssertionError("the executions don't come to an end")

    def run(self, saga: Definition, value: Any, *, key: str | None = None) -> UUID:
        """Start an execution and carry everything to its end."""
        execution_id = self.start(saga, value, key=key)
        self.drain()
        return execution_id

    def _make_due(self) -> None:
        """Let the time come at which the reaper looks at what is owed."""
        with self.database.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE fencepost_executions SET due_at = created_at WHERE due_at IS NOT NULL"
            )

    def expire_leases(self) -> None:
        """Let the time pass after which a silent owner has lost its execution."""
        self._skipped += A_LONG_TIME
        if self._redis is not None:
            for key in self._redis.scan_iter(match="fencepost:lease:*"):
                self._redis.hset(key, "expires", 1)

    @contextmanager
    def meanwhile(self, point: str, doing: Callable[[], None], **match: str) -> Iterator[None]:
        """Do something when a crash point is reached for the first time.

        Args:
            point: Its name.
            doing: Runs inside the step, as another worker would while this one is frozen.
            **match: Facts of the point.
        """
        plan = Plan(point, match, doing)
        self._plans.append(plan)
        faults.install(self._reached)
        try:
            yield
        finally:
            self._plans.remove(plan)
            if not self._plans:
                faults.install(None)
        assert plan.fired, f"{point} {match} was never reached"

    def _reached(self, point: str, facts: dict[str, Any]) -> None:
        for plan in self._plans:
            fits = all(str(facts.get(name)) == value for name, value in plan.match.items())
            if not plan.fired and plan.point == point and fits:
                plan.fired = True
                plan.doing()

    @contextmanager
    def killed_at(self, point: str, **match: str) -> Iterator[None]:
        """The worker that comes to this point is never heard of again; its lease runs out."""

        def die() -> None:
            raise Died

        with self.meanwhile(point, die, **match):
            yield
        self.expire_leases()

    @contextmanager
    def frozen_at(self, point: str, **match: str) -> Iterator[None]:
        """The worker that comes to this point becomes a zombie; others finish the work."""

        def takeover() -> None:
            self.expire_leases()
            for execution in self.live():
                self.dispatch(execution)
            self.drain()

        with self.meanwhile(point, takeover, **match):
            yield

    # -- asking ----------------------------------------------------------------------------

    def row(self, execution_id: UUID) -> Execution:
        found = self.store.get(execution_id)
        assert found is not None
        return found

    def live(self) -> list[Execution]:
        """Active executions of every run."""
        with self.database.connect() as connection:
            ids = connection.exec_driver_sql(
                "SELECT execution_id FROM fencepost_executions WHERE status = 'active'"
            ).scalars()
            found = [i if isinstance(i, UUID) else UUID(str(i)) for i in ids]
        return [e for i in found if (e := self.row(i)).status is Status.ACTIVE]

    def events(self, execution_id: UUID, name: str) -> list[Event]:
        return [event for event in self.store.events([execution_id]) if event.name == name]

    def close(self) -> None:
        self.database.dispose()
        if self._redis is not None:
            self._redis.close()
