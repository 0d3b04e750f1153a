"""`SqlLimitStore`: the lines of those who want to run a limited step, and their permits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from fencepost.limits import LATE, MICROSECOND, PRESENT, Limit, Usage, next_start
from fencepost.records import Execution, Status
from fencepost.stores.sql import rows
from fencepost.stores.sql.executions import SqlExecutionStore
from fencepost.stores.sql.schema import executions, limits, permits
from fencepost.stores.sql.types import UtcDateTime, now

AT_ONCE = 500
"""Starts that one transaction gives at most."""

_COUNTS = sa.and_(
    executions.c.execution_id == permits.c.execution_id,
    executions.c.head == permits.c.head,
    executions.c.attempt == permits.c.attempt,
    executions.c.status == Status.ACTIVE,
    executions.c.turned_back.is_(sa.null()),
)
"""The permit is of the attempt in hand: whatever ends that, gives the permit up."""

_COUNTED = permits.join(executions, _COUNTS)


class SqlLimitStore:
    """Implements `fencepost.ports.LimitStore`.

    Each resource has a row that is locked while anything about it is decided. A worker that is
    frozen meanwhile holds others up: on PostgreSQL until its transaction is ended for idling, on
    SQLite, which has one lock for all writers, until it goes on or is killed.

    Args:
        executions: The store of the executions, on the same database.
    """

    def __init__(self, executions: SqlExecutionStore) -> None:
        self._executions = executions

    def take(
        self, execution_id: UUID, resource: str, limit: Limit, *, head: UUID, attempt: int
    ) -> timedelta | None:
        """See `LimitStore.take`."""
        with self._executions.writing() as connection:
            line = _locked(connection, resource, limit)
            return line.ask(execution_id, head, attempt)

    def serve(self, resource: str, limit: Limit) -> list[Execution]:
        """See `LimitStore.serve`. Those whose start is later than now are due at that time."""
        with self._executions.writing() as connection:
            line = _locked(connection, resource, limit)
            line.tidy()
            given = line.give()
            line.call(given)
            line.leave()
            return line.ready(given)

    def usage(self) -> list[Usage]:
        """What each resource is used by that anybody uses or waits for, by name."""
        running = sa.func.count(permits.c.starts_at)
        query = (
            sa.select(permits.c.resource, running, sa.func.count() - running)
            .select_from(_COUNTED)
            .group_by(permits.c.resource)
            .order_by(permits.c.resource)
        )
        with self._executions.reading() as connection:
            return [Usage(*row) for row in connection.execute(query)]


def _locked(connection: sa.Connection, resource: str, limit: Limit) -> _Line:
    """The line of a resource, until the transaction ends."""
    query = sa.select(limits.c.next_at).where(limits.c.resource == resource).with_for_update()
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(limits).values(resource=resource).on_conflict_do_nothing()
    # Who waits for the lock of a row that its holder deletes, finds none.
    while (row := connection.execute(query).first()) is None:
        connection.execute(insert)
    # Asked for once the lock is held: the times of a line never go back.
    moment = connection.execute(sa.select(sa.cast(now(), UtcDateTime))).scalar_one()
    return _Line(connection, resource, limit, moment, row.next_at)


@dataclass
class _Line:
    """Who has a permit for a resource, and who waits for one. Its row is locked.

    Attributes:
        now: The database's time.
        next_at: When the next may begin, if there is a rate.
    """

    connection: sa.Connection
    resource: str
    limit: Limit
    now: datetime
    next_at: datetime | None

    def __post_init__(self) -> None:
        self._mine = permits.c.resource == self.resource

    def ask(self, execution_id: UUID, head: UUID, attempt: int) -> timedelta | None:
        """See `LimitStore.take`."""
        if not self._is_current(execution_id, head, attempt):
            return None  # a zombie: its successor's permit must stay as it is
        self.tidy()
        start, begun = self._enter(execution_id, head, attempt)
        if begun:
            return timedelta(0)
        given = self.give()
        start = given.pop(execution_id, start)
        self.call(given)
        if start is None:
            return None
        if start <= self.now:
            self._set(execution_id, begun_at=self.now)
        return max(timedelta(0), start - self.now)

    def tidy(self) -> None:
        """Delete what doesn't count any more, and free the places of those who don't come."""
        counts = sa.select(executions.c.execution_id).where(_COUNTS).correlate(permits).exists()
        deleted = sa.delete(permits).where(self._mine, ~counts).returning(permits.c.starts_at)
        gone = [start for start in self.connection.execute(deleted).scalars() if start is not None]
        if self.limit.rate is not None and any(start > self.now for start in gone):
            last = sa.select(sa.func.max(permits.c.starts_at)).where(self._mine)
            kept = self.connection.execute(last).scalar()
            self._begin_next(next_start(self.next_at, gone, kept, self.now))
        self.connection.execute(
            sa.update(permits)
            .where(self._mine, permits.c.starts_at.is_not(None), self._is_idle())
            .values(starts_at=None, begun_at=None)
        )

    def _is_idle(self) -> sa.ColumnElement[bool]:
        """It was given a start, but nobody runs it, and nobody will soon."""
        overdue = permits.c.starts_at < self.now - PRESENT
        unowned = (
            sa.select(executions.c.execution_id)
            .where(
                executions.c.execution_id == permits.c.execution_id,
                executions.c.owner.is_(None),
                sa.or_(executions.c.paused_at.is_not(None), overdue),
            )
            .correlate(permits)
            .exists()
        )
        return sa.or_(unowned, sa.and_(overdue, permits.c.begun_at.is_(None)))

    def _is_current(self, execution_id: UUID, head: UUID, attempt: int) -> bool:
        query = sa.select(executions.c.execution_id).where(
            executions.c.execution_id == execution_id,
            executions.c.head == head,
            executions.c.attempt == attempt,
            executions.c.status == Status.ACTIVE,
            executions.c.turned_back.is_(sa.null()),
        )
        return self.connection.execute(query).first() is not None

    def _enter(self, execution_id: UUID, head: UUID, attempt: int) -> tuple[datetime | None, bool]:
        """Come to the end of the line, or be found in it; the start, and whether it is used."""
        query = sa.select(permits.c.starts_at, permits.c.begun_at).where(
            self._mine, permits.c.execution_id == execution_id
        )
        row = self.connection.execute(query).first()
        if row is None:
            entry = {"execution_id": execution_id, "head": head, "attempt": attempt}
            insert = sa.insert(permits).values(resource=self.resource, asked_at=self.now, **entry)
            self.connection.execute(insert)
            return None, False
        begun = row.begun_at is not None
        start = row.starts_at
        missed = start is not None and start < self.now - LATE and not begun
        if missed and self.limit.rate is not None:
            start = None
        self._set(execution_id, asked_at=self.now, starts_at=start)
        return start, begun

    def _set(self, execution_id: UUID, **values: datetime | None) -> None:
        which = (self._mine, permits.c.execution_id == execution_id)
        self.connection.execute(sa.update(permits).where(*which).values(**values))

    def give(self) -> dict[UUID, datetime]:
        """Give starts to those who wait longest, as far as there are places."""
        given = {execution_id: self._start() for execution_id in self._next_in_line()}
        if given:
            update = sa.update(permits).where(
                self._mine, permits.c.execution_id == sa.bindparam("of", type_=sa.Uuid)
            )
            update = update.values(starts_at=sa.bindparam("start", type_=UtcDateTime))
            starts = [{"of": of, "start": start} for of, start in given.items()]
            self.connection.execute(update, starts)
            self._begin_next(self.next_at)
        return given

    def _next_in_line(self) -> list[UUID]:
        places = AT_ONCE
        if self.limit.concurrency is not None:
            placed = sa.select(sa.func.count(permits.c.starts_at)).where(self._mine)
            free = self.limit.concurrency - self.connection.execute(placed).scalar_one()
            places = min(places, free)
        if places <= 0:
            return []
        query = (
            sa.select(permits.c.execution_id)
            .select_from(_COUNTED)
            .where(
                self._mine,
                permits.c.starts_at.is_(None),
                permits.c.asked_at > self.now - PRESENT,
                executions.c.paused_at.is_(None),
            )
            .order_by(permits.c.number)
            .limit(places)
        )
        return list(self.connection.execute(query).scalars())

    def _start(self) -> datetime:
        if self.limit.rate is None:
            return self.now
        start = self.now if self.next_at is None else max(self.now, self.next_at)
        # SQLite's times are texts that end in milliseconds.
        coarse = self.connection.dialect.name == "sqlite"
        self.next_at = start + self.limit.spacing(MICROSECOND * (1000 if coarse else 1))
        return start

    def _begin_next(self, next_at: datetime | None) -> None:
        self.next_at = next_at
        if self.limit.rate is not None:
            which = limits.c.resource == self.resource
            self.connection.execute(sa.update(limits).where(which).values(next_at=next_at))

    def call(self, given: Mapping[UUID, datetime]) -> None:
        """Make them due at their start; one whose row somebody has locked looks by itself."""
        if not given:
            return
        query = (
            sa.select(executions.c.execution_id)
            .where(
                executions.c.execution_id.in_(given),
                executions.c.owner.is_(None),
                executions.c.status == Status.ACTIVE,
            )
            .with_for_update(key_share=True, skip_locked=True)
        )
        called = list(self.connection.execute(query).scalars())
        if called:
            update = sa.update(executions).where(
                executions.c.execution_id == sa.bindparam("of", type_=sa.Uuid)
            )
            due_at = sa.bindparam("start", type_=UtcDateTime)
            starts = [{"of": of, "start": given[of]} for of in called]
            self.connection.execute(update.values(due_at=due_at, dispatches=0), starts)

    def ready(self, given: Mapping[UUID, datetime]) -> list[Execution]:
        """Those that may begin at once, in the order in which they asked."""
        ready = [of for of, start in given.items() if start <= self.now]
        if not ready:
            return []
        query = sa.select(*rows.EXECUTION_COLUMNS).where(executions.c.execution_id.in_(ready))
        found = [rows.execution(row) for row in self.connection.execute(query)]
        return sorted(found, key=lambda execution: ready.index(execution.execution_id))

    def leave(self) -> None:
        """Delete the line's own row once nothing is to be remembered: keys come and go."""
        anybody = sa.select(permits.c.number).where(self._mine).exists()
        over = sa.or_(limits.c.next_at.is_(None), limits.c.next_at <= self.now)
        which = limits.c.resource == self.resource
        self.connection.execute(sa.delete(limits).where(which, over, ~anybody))
