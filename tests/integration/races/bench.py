"""A shop's fleet in this process, and questions to ledger and providers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import sqlalchemy as sa

from fencepost import Status
from fencepost.effects import EffectRecord
from fencepost.engine.reaper import Reaper
from fencepost.records import Event, EventName
from fencepost.verify import verify
from tests.acceptance.races import books, stories
from tests.acceptance.races.bank import Bank, Banks, Kind
from tests.acceptance.races.shop import Money
from tests.support.inline import A_LONG_TIME, Inline
from tests.support.waiting import wait_for

CHARGED = 10_000
"""Cents that an order was charged before anybody wants some of them back."""


class Bench(Inline):
    """Delivers what the engine dispatches, one message at a time.

    Args:
        url: An empty PostgreSQL database.
        sagas: What the workers know.
        banks: The providers.

    Attributes:
        slept: Seconds that every holder of a lease has slept through, without knowing.
    """

    def __init__(self, url: str, sagas: Iterable[Any], banks: Banks) -> None:
        self.slept = 0.0
        super().__init__(url, sagas, clock=lambda: time.monotonic() + self.slept)
        self.banks = banks
        books.books.create_all(self.database)

    def reset(self) -> None:
        """Forget all executions; wake up."""
        self.queue.clear()
        self.slept = 0.0
        stories.world.__init__()  # type: ignore[misc]
        tables = sa.inspect(self.database).get_table_names()
        kept = {"alembic_version", "fencepost_version"}
        names = ", ".join(name for name in tables if name not in kept)
        with self.database.begin() as connection:
            connection.exec_driver_sql(f"TRUNCATE {names} CASCADE")

    def settle(self) -> None:
        """What is stored keeps the invariants: nothing is in doubt, unless it is parked."""
        report = verify(self.database.url.render_as_string(hide_password=False))
        assert report.ok, "\n".join(map(str, report.violations))

    # -- the customer ----------------------------------------------------------------------

    def charged(self, mode: str, order: str, cents: int = CHARGED) -> Bank:
        """The provider of this mode, where the order was paid for."""
        bank = self.banks[mode]
        bank.charge(order, cents)
        return bank

    def money(self, order: str, cents: int = 1_000, **more: Any) -> Money:
        """What is moved."""
        return Money(order=order, cents=cents, **more)

    # -- messages --------------------------------------------------------------------------

    def one_delivery(self, execution_id: UUID) -> None:
        """The next message for this execution, and no other."""
        self._make_due()
        self.deliver(execution_id)

    def freeze(self, execution_id: UUID, point: str, *, aware: bool = False, **match: str) -> None:
        """Deliver to a worker that freezes there, and wakes up when others have done the work.

        Args:
            execution_id: What it works on.
            point: Where it freezes, the first time.
            aware: Its own clock has gone on, so that it can know that it is late.
            **match: Facts of the point.
        """

        def others_do_it() -> None:
            self.expire_leases()
            self.dispatch(self.row(execution_id))
            self.patiently(execution_id)
            self.slept += A_LONG_TIME if aware else 0

        self.queue.clear()
        with self.meanwhile(point, others_do_it, **match):
            self.deliver(execution_id)
        self.slept = 0.0
        self.drain()

    def patiently(self, execution_id: UUID, seconds: float = 10) -> None:
        """Let the reaper deliver when it is time, until nothing is owed any more."""

        def ended() -> bool:
            Reaper(self.engine).due()
            while self.queue:
                self.deliver(self.queue.popleft())
            return self.status(execution_id) is not Status.ACTIVE

        wait_for(ended, seconds, lambda: f"the end of {self.row(execution_id)}")

    # -- questions -------------------------------------------------------------------------

    def status(self, execution_id: UUID) -> Status:
        """Where the execution stands."""
        return self.row(execution_id).status

    def result(self, execution_id: UUID) -> Any:
        """What it came to, which must be success."""
        row = self.row(execution_id)
        assert row.status is Status.SUCCEEDED, (row.status, row.parked_reason, row.error)
        return row.result

    def effects(self, execution_id: UUID) -> list[EffectRecord]:
        """What is recorded of its effects."""
        return self.engine.effects.of_execution(execution_id)

    def effect(self, execution_id: UUID) -> EffectRecord:
        """Its only effect."""
        (found,) = self.effects(execution_id)
        return found

    def code(self, execution_id: UUID) -> str:
        """The code of the error that it ended or parked with."""
        return str(self.row(execution_id).error["code"])

    def refused_writes(self, execution_id: UUID) -> list[Event]:
        """The zombie's writes that were refused here."""
        names = (EventName.LEASE_LOST, EventName.ZOMBIE_WRITE_REJECTED)
        return [event for event in self.store.events([execution_id]) if event.name in names]

    def assert_parked(self, execution_id: UUID, code: str) -> None:
        """It waits for a person, and says why."""
        row = self.row(execution_id)
        assert row.status is Status.PARKED, (row.status, row.error)
        assert row.error["code"] == code
        assert row.parked_reason

    def assert_moved(
        self, bank: Bank, order: str, *, refunds: list[int] | None = None, charges: int = 1
    ) -> None:
        """What the provider's own books say."""
        assert bank.booked(order, "refund") == (refunds or [])
        assert len(bank.booked(order, "charge")) == charges

    def resolve(self, execution_id: UUID, *, landed: bool, result: Any = None, why: str) -> None:
        """A person decides, and lets the execution go on."""
        record = self.effect(execution_id)
        self.engine.effects.resolve(
            record.sink, record.key, landed=landed, result=result, by="ada", why=why
        )
        self.dispatch(self.store.unpark(execution_id, why))

    # -- time ------------------------------------------------------------------------------

    def let_pass(self, execution_id: UUID, ago: timedelta) -> None:
        """All calls of this execution's effects are that much longer ago."""
        with self.database.begin() as connection:
            connection.execute(
                sa.text(
                    "UPDATE fencepost_effects SET first_call_at = first_call_at - :ago,"
                    " last_call_at = last_call_at - :ago WHERE execution_id = :id"
                ),
                {"ago": ago, "id": execution_id},
            )


def lose_next_commit(database: sa.Engine) -> None:
    """The server commits, and its answer doesn't arrive."""
    commit = database.dialect.do_commit

    def lost(connection: Any) -> None:
        del database.dialect.do_commit
        commit(connection)
        connection.driver_connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    database.dialect.do_commit = lost  # type: ignore[method-assign, assignment]


def cut_next_write(database: sa.Engine) -> None:
    """The server ends our session in the middle of its next update of an effect."""

    @sa.event.listens_for(database, "before_cursor_execute")
    def cut(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("UPDATE fencepost_effects"):
            return
        sa.event.remove(database, "before_cursor_execute", cut)
        pid = connection.connection.driver_connection.info.backend_pid
        with database.connect() as other:
            other.exec_driver_sql("SELECT pg_terminate_backend(%s)", (pid,))


MODES = ("dedupes", "fences", "queryable", "blind")
PROTECTED = ("dedupes", "fences", "queryable")

__all__ = ["CHARGED", "MODES", "PROTECTED", "Bank", "Bench", "Kind"]
