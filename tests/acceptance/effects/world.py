"""A database, a Valkey, a provider and a fleet of the shop's workers."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from fencepost import EffectKind, Handle, Status, identity
from fencepost.effects import EffectRecord
from fencepost.engine import Outcome
from fencepost.records import Event, Execution
from fencepost.stores.sql import migrate
from fencepost.verify import Report, verify
from tests.acceptance.effects import shop
from tests.support.fleet import Fleet, Worker
from tests.support.provider import Provider

END_SECONDS = 40.0


class World:
    """Made by a fixture.

    Args:
        folder: For logs, fault plans and the provider's ledger.
        database_url: An empty database; it is migrated here.
        redis_url: Broker and leases.
        lease_ttl: Seconds.
        pool: Celery's `-P`.

    Attributes:
        provider: A process of its own, whose ledger counts.
        fleet: The workers.
        fp: Fencepost in the test's own process.
    """

    def __init__(
        self, folder: Path, database_url: str, redis_url: str, *, lease_ttl: float, pool: str
    ) -> None:
        self.database_url, self.redis_url, self.lease_ttl = database_url, redis_url, lease_ttl
        self._pool = pool
        migrate(database_url)
        self.provider = Provider(folder)
        # The reaper looks often: what is measured is the protocol, and not the waiting for it.
        settings: dict[str, Any] = {
            "database_url": database_url,
            "lease_ttl": lease_ttl,
            "reaper_interval": 0.2,
            "sweep_interval": 0.4,
        }
        self.fp = shop.make(redis_url, **settings)
        shop.metadata.create_all(self.fp.database)
        environment = {f"FENCEPOST_{name.upper()}": str(value) for name, value in settings.items()}
        environment |= {"SHOP_BROKER": redis_url, shop.PROVIDER: self.provider.url}
        self.fleet = Fleet(folder, "tests.acceptance.effects.worker", environment)

    @property
    def database(self) -> str:
        """`postgres` or `sqlite`."""
        return "postgres" if self.database_url.startswith("postgresql") else "sqlite"

    def close(self) -> None:
        """End every process, and the connections."""
        self.fleet.stop()
        self.provider.close()
        self.fp.database.dispose()

    # -- workers ---------------------------------------------------------------------------

    def start_workers(self, count: int) -> None:
        """Replace the dead, so that there are this many; doesn't wait for them."""
        self.fleet.start(max(0, count - len(self.fleet.alive)), pool=self._pool)

    def await_workers(self) -> None:
        """Wait until all that live take messages."""
        for worker in self.fleet.alive:
            worker.await_ready()

    def thaw_all(self) -> None:
        """Nobody stays frozen."""
        for worker in self.fleet.alive:
            worker.signal_group(signal.SIGCONT)

    def await_dropped(self, worker: Worker, execution_id: UUID) -> None:
        """Wait until a worker has said what became of its delivery."""
        ends = (f"[{execution_id}] ignored", f"[{execution_id}] succeeded")
        self.fleet.wait_for(
            lambda: any(end in worker.log() for end in ends),
            END_SECONDS,
            f"{worker.name} to be done with {execution_id}",
        )

    # -- executions ------------------------------------------------------------------------

    @staticmethod
    def id_of(kind: EffectKind, reference: str) -> UUID:
        """The execution that pays for a reference; known before it is started."""
        return identity.keyed_execution_id(shop.SAGAS[kind].name, reference)

    def start(self, kind: EffectKind, reference: str, *, careful: bool = False) -> Handle[int]:
        """Start paying for a reference."""
        order = shop.Order(reference=reference, careful=careful)
        handle = self.fp.start(shop.SAGAS[kind], order, key=reference)
        assert handle.execution_id == self.id_of(kind, reference)
        return handle

    def dispatch(self, execution_id: UUID) -> None:
        """One more message, in case a lost worker took the first."""
        self.fp.engine.dispatch(self.row(execution_id))

    def wait(self, handle: Handle[int]) -> Outcome:
        """Wait until it has ended or is parked."""
        try:
            return handle.wait(END_SECONDS)
        except TimeoutError as late:
            raise AssertionError(f"{late}\n{self.story(handle.execution_id)}") from None

    def row(self, execution_id: UUID) -> Execution:
        """The execution as it is now."""
        found = self.fp.engine.executions.get(execution_id)
        assert found is not None
        return found

    def effect(self, execution_id: UUID) -> EffectRecord | None:
        """Its only effect, if it has been recorded."""
        found = self.fp.engine.effects.of_execution(execution_id)
        assert len(found) <= 1
        return found[0] if found else None

    def events(self, execution_id: UUID, *names: str) -> list[Event]:
        """Its audit events of these names, or all."""
        events = self.fp.engine.executions.events([execution_id])
        return [event for event in events if not names or event.name in names]

    def verify(self, execution_id: UUID, *, settle: float = 0.0) -> Report:
        """Check the engine's invariants on what is stored of it."""
        return verify(
            self.database_url,
            self.redis_url,
            None,
            run=execution_id,
            settle=timedelta(seconds=settle),
        )

    def paid(self, kind: EffectKind, reference: str) -> list[int]:
        """The payments for a reference, by the sink's own ledger."""
        if kind is not EffectKind.TRANSACTIONAL:
            return self.provider.numbers(reference)
        rows = sa.select(shop.bookings.c.id).where(shop.bookings.c.reference == reference)
        with self.fp.database.connect() as connection:
            return list(connection.execute(rows).scalars())

    def decide(self, execution_id: UUID) -> None:
        """What a person does who asks the provider: tell the truth, whatever it is."""
        effect = self.effect(execution_id)
        assert effect is not None
        (listed,) = [e for e in self.fp.effects_in_doubt() if e.key == effect.key]
        paid = self.provider.numbers(listed.request["reference"])
        self.fp.resolve_effect(
            effect.sink,
            effect.key,
            landed=bool(paid),
            result={"number": paid[0]} if paid else None,
            by="ada",
            why="the provider's statement says so",
        )

    def story(self, execution_id: UUID) -> str:
        """All that is known, for a failed assertion."""
        row = self.row(execution_id)
        lines = [f"{row.status} epoch {row.epoch} owner {row.owner}: {row.parked_reason}"]
        lines += [
            f"  {e.at} {e.name} {e.epoch} {e.owner} {e.sink}" for e in self.events(row.execution_id)
        ]
        lines.append(repr(self.effect(execution_id)))
        if row.status is not Status.SUCCEEDED:
            lines.append(self.fleet.logs())
        return "\n".join(lines)
