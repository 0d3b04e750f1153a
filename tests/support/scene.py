"""A database, a Valkey, a Celery fleet on both, and what a test asks them."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import redis
import sqlalchemy as sa

from fencepost import Handle, Saga, Status
from fencepost.engine import Outcome
from fencepost.records import Checkpoint, Event, Execution
from fencepost.stores.sql import migrate
from fencepost.testing import assert_verified
from tests.support.apps import composition, gates
from tests.support.apps.gates import Gates
from tests.support.apps.sagas import Order
from tests.support.apps.sink import metadata, sink
from tests.support.fleet import Fleet, Worker

END_SECONDS = 20.0


class Scene:
    """Made by a fixture; its workers run the sample app.

    Args:
        folder: For logs and fault plans.
        database_url: An empty database; it is migrated here.
        redis_url: Broker, results and leases.
        lease_ttl: Seconds.
        conf: Celery settings of workers and starter.
        sagas: The module whose sagas workers and starter know.
        settings: More fields of `FencepostSettings`.

    Attributes:
        environment: Of the workers, beside what they inherit.
        fleet: The workers.
        gates: Where steps wait, or fail, while the test says so.
        fp: Fencepost in the test's own process.
    """

    def __init__(
        self,
        folder: Path,
        database_url: str,
        redis_url: str,
        *,
        lease_ttl: float = 2.0,
        conf: Mapping[str, Any] | None = None,
        sagas: str = composition.SAGAS,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.redis_url = redis_url
        self.database_url = database_url
        self.lease_ttl = lease_ttl
        migrate(database_url)
        shared = {"database_url": database_url, "lease_ttl": lease_ttl, **(settings or {})}
        self.fp = composition.make(redis_url, conf or {}, sagas=sagas, **shared)
        metadata.create_all(self.fp.database)
        environment = {f"FENCEPOST_{name.upper()}": str(value) for name, value in shared.items()}
        environment |= {"SAMPLE_BROKER": redis_url, "SAMPLE_CONF": json.dumps(conf or {})}
        self.gates = Gates(folder / "gates")
        environment |= {"SAMPLE_SAGAS": sagas, gates.ENVIRONMENT: str(self.gates.folder)}
        self.environment = environment
        self.fleet = Fleet(folder, "tests.support.apps.worker", environment)
        self._redis: Any = None

    @property
    def postgres(self) -> bool:
        """Whether the truth is on PostgreSQL."""
        return self.database_url.startswith("postgresql")

    @property
    def redis(self) -> Any:
        """A plain client of broker, results and leases."""
        if self._redis is None:
            self._redis = redis.Redis.from_url(self.redis_url, decode_responses=True)
        return self._redis

    def close(self) -> None:
        """End the workers and the connections."""
        self.fleet.stop()
        self.fp.database.dispose()

    # -- doing -----------------------------------------------------------------------------

    def start(self, saga: Saga[Order, Any], *, key: str | None = None, **order: Any) -> Handle[Any]:
        """Start an execution."""
        return self.fp.start(saga, Order(**order), key=key)

    def wait(self, handle: Handle[Any], timeout: float = END_SECONDS) -> Outcome:
        """Wait until it has ended or is parked; failing that, show the workers' last words."""
        try:
            return handle.wait(timeout)
        except TimeoutError as late:
            raise AssertionError(f"{late}\n{self.story(handle.execution_id)}") from None

    def succeeds(self, handle: Handle[Any], timeout: float = END_SECONDS) -> Any:
        """Wait for success; returns the stored result."""
        outcome = self.wait(handle, timeout)
        assert outcome.status is Status.SUCCEEDED, self.story(handle.execution_id)
        return outcome.result

    def dispatch_again(self, execution_id: UUID) -> None:
        """Publish one more copy of the execution's message."""
        self.fp.engine.transport.dispatch(self.row(execution_id))

    def refill(self, count: int, *, ready: int) -> None:
        """Thaw all, forget faults, replace the dead, and wait until enough take messages."""
        self.fleet.disarm()
        for worker in self.fleet.alive:
            worker.signal_group(signal.SIGCONT)
        missing = count - len(self.fleet.alive)
        self.fleet.start(max(0, missing))
        for worker in self.fleet.alive[:ready]:
            worker.await_ready()

    # -- asking ----------------------------------------------------------------------------

    def row(self, execution_id: UUID) -> Execution:
        """The execution as it is now."""
        found = self.fp.engine.executions.get(execution_id)
        assert found is not None
        return found

    def chain(self, execution_id: UUID) -> tuple[Checkpoint, ...]:
        """Its checkpoints."""
        return self.fp.engine.executions.chain(execution_id)

    def events(self, execution_id: UUID, name: str | None = None) -> list[Event]:
        """Its audit events, of one name or all."""
        events = self.fp.engine.executions.events([execution_id])
        return [event for event in events if name in (None, event.name)]

    def children(self, parent_id: UUID, step: str = "items") -> list[Execution]:
        """The children of its fan-out."""
        return self.fp.engine.executions.children(parent_id, step, 1)

    def noted(
        self, execution_id: UUID | Sequence[UUID], what: str | None = None
    ) -> list[tuple[str, str, int]]:
        """(step, what, epoch) of each row in the sink, oldest first."""
        ids = [execution_id] if isinstance(execution_id, UUID) else list(execution_id)
        query = sa.select(sink.c.step, sink.c.what, sink.c.epoch).where(
            sink.c.execution_id.in_(ids)
        )
        if what is not None:
            query = query.where(sink.c.what == what)
        with self.fp.database.connect() as connection:
            found = connection.execute(query.order_by(sink.c.id))
            return [(step, kind, epoch) for step, kind, epoch in found]

    def runs(self, execution_id: UUID, step: str) -> int:
        """How often a step's body ran (or, for a transactional one, landed)."""
        return sum(
            noted == step and what in ("ran", "booked")
            for noted, what, _ in self.noted(execution_id)
        )

    def in_queues(self) -> int:
        """Messages that no worker has taken, whatever their queue and priority."""
        queues = self.redis.scan_iter(_type="list", count=100)
        return sum(self.redis.llen(queue) for queue in queues)

    def logged(self, words: str) -> int:
        """How often the workers have printed this."""
        return sum(worker.log().count(words) for worker in self.fleet.workers)

    def story(self, execution_id: UUID) -> str:
        """All that is known, for a failed assertion."""
        lines = [repr(self.row(execution_id))]
        lines += [f"  {c.seq} {c.kind} {c.step} epoch {c.epoch}" for c in self.chain(execution_id)]
        lines += [f"  {e.at} {e.name} {e.epoch} {e.owner}" for e in self.events(execution_id)]
        return "\n".join([*lines, self.fleet.logs()])

    def assert_one_line(self, execution_id: UUID) -> None:
        """One root, no gap, no fork; epochs never fall; ids derived; the head is the last."""
        chain = self.chain(execution_id)
        assert [c.seq for c in chain] == list(range(len(chain)))
        parents = [c.parent_checkpoint_id for c in chain]
        assert parents == [None, *(c.checkpoint_id for c in chain[:-1])]
        epochs = [c.epoch for c in chain]
        assert epochs == sorted(epochs)
        assert len({(c.step_key, c.kind) for c in chain}) == len(chain)
        assert {c.execution_id for c in chain} == {execution_id}
        assert all(c.step_key == f"{execution_id}:{c.step}:{c.visit}" for c in chain)
        assert self.row(execution_id).head == chain[-1].checkpoint_id

    def assert_verified(self, *, settle: float = 10.0) -> None:
        """The verifier finds nothing wrong with anything that is stored."""
        urls = self.database_url, self.redis_url, self.redis_url
        assert_verified(*urls, settle=settle, at_least=0)

    def worker_of(self, owner: str | None) -> Worker:
        """The worker that an owner's name in an event or checkpoint stands for."""
        return self.fleet.worker_of(owner)
