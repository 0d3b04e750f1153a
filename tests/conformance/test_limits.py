"""The limit stores in memory and on real databases keep one contract."""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial

import pytest
import sqlalchemy as sa

from fencepost.stores.memory import MemoryExecutionStore, MemoryLimitStore
from fencepost.stores.sql import SqlExecutionStore, SqlLimitStore
from fencepost.stores.sql.schema import executions, limits, permits
from tests.conformance.limits import LimitStoreConformance
from tests.conformance.line import GPU, SIX, ask, may_begin, served
from tests.conformance.support import Worker, eventually, started
from tests.conformance.test_memory import Clock


class TestMemoryLimits(LimitStoreConformance):
    @pytest.fixture
    def clock(self):
        return Clock()

    @pytest.fixture
    def store(self, clock):
        return MemoryExecutionStore(clock=clock)

    @pytest.fixture
    def limits(self, store):
        return MemoryLimitStore(store)

    @pytest.fixture
    def pass_time(self, clock):
        def pass_time(by: timedelta) -> None:
            clock.now += by.total_seconds()

        return pass_time

    @pytest.fixture
    def starts(self, limits):
        def starts():
            given = [permit.starts_at for permit in limits._lines[GPU].permits.values()]
            return sorted(start for start in given if start is not None)

        return starts


TIMES = {
    permits: ("starts_at", "begun_at", "asked_at"),
    limits: ("next_at",),
    executions: ("due_at",),
}


def shift(engine: sa.Engine, by: timedelta) -> None:
    """Move all that a limit store looks at into the past."""
    with engine.begin() as connection:
        for table, names in TIMES.items():
            (key,) = table.primary_key.columns
            for name in names:
                column = table.c[name]
                for row in connection.execute(sa.select(key, column).where(column.is_not(None))):
                    update = sa.update(table).where(key == row[0])
                    connection.execute(update.values({name: row[1] - by}))


class SqlLimits(LimitStoreConformance):
    @pytest.fixture
    def limits(self, store):
        return SqlLimitStore(store)

    @pytest.fixture
    def pass_time(self, engine):
        return partial(shift, engine)

    @pytest.fixture
    def starts(self, engine):
        query = sa.select(permits.c.starts_at).where(permits.c.starts_at.is_not(None))

        def starts():
            with engine.connect() as connection:
                return list(connection.execute(query.order_by(permits.c.starts_at)).scalars())

        return starts

    def test_a_line_in_which_nobody_stands_has_no_row(self, store, limits, engine):
        """Keys come and go, like customers."""
        worker = started(store)
        assert may_begin(limits, worker)
        assert served(limits) == []
        assert rows_of(engine) == (1, 1)
        worker.finish()
        assert rows_of(engine) == (1, 1)
        assert served(limits) == []
        assert rows_of(engine) == (0, 0)

    def test_a_rates_next_start_is_remembered_until_it_has_come(
        self, store, limits, engine, pass_time
    ):
        worker = started(store)
        assert may_begin(limits, worker, SIX)
        worker.finish()
        assert served(limits, SIX) == []
        assert rows_of(engine) == (1, 0)
        pass_time(SIX.per)
        assert served(limits, SIX) == []
        assert rows_of(engine) == (0, 0)


def rows_of(engine: sa.Engine) -> tuple[int, int]:
    """How many rows the lines have, and those who stand in them."""
    with engine.connect() as connection:
        count = [
            connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in (limits, permits)
        ]
    return count[0], count[1]


class TestPostgresLimits(SqlLimits):
    @pytest.fixture
    def engine(self, postgres_engine):
        return postgres_engine

    @pytest.fixture
    def store(self, engine):
        return SqlExecutionStore(engine)

    def test_who_serves_waits_for_who_asks(self, store, limits, engine):
        """One that finds no place, while one becomes free, is called nevertheless."""
        holder, waiter = started(store), started(store)
        assert may_begin(limits, holder)
        called: list[object] = []
        serving = threading.Thread(target=lambda: called.extend(served(limits)), daemon=True)
        blocked = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")

        def looked(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            looks = statement.startswith("SELECT count(fencepost_permits.starts_at)")
            if looks and serving.ident is None:
                holder.finish()
                serving.start()
                with engine.connect() as looking:
                    eventually(lambda: looking.execute(blocked).scalar())

        sa.event.listen(engine, "after_cursor_execute", looked)
        try:
            assert ask(limits, waiter) is None
        finally:
            sa.event.remove(engine, "after_cursor_execute", looked)
        serving.join(10)
        assert called == [waiter.execution_id]
        assert may_begin(limits, waiter)

    def test_a_locked_execution_holds_nobody_up(self, store, limits, engine):
        holder, waiter = started(store), started(store)
        assert may_begin(limits, holder)
        assert ask(limits, waiter) is None
        store.hand_back(waiter.token(), timedelta(hours=1))
        holder.commit()
        lock = sa.select(executions.c.owner).with_for_update()
        transactional = engine.execution_options(isolation_level="READ COMMITTED")
        with transactional.begin() as pausing:
            pausing.execute(lock.where(executions.c.execution_id == waiter.execution_id))
            assert served(limits) == [waiter.execution_id]
        assert may_begin(limits, Worker.take(store, waiter.execution_id))


class TestSqliteLimits(SqlLimits):
    @pytest.fixture
    def engine(self, sqlite_engine):
        return sqlite_engine

    @pytest.fixture
    def store(self, engine):
        return SqlExecutionStore(engine)
