"""The effect stores in memory and on real databases keep one contract."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import pytest
import sqlalchemy as sa

from fencepost import faults
from fencepost.effects.model import EffectStatus
from fencepost.errors import ExecutionLeaseLostError
from fencepost.records import Status
from fencepost.stores.memory import MemoryEffectStore, MemoryExecutionStore
from fencepost.stores.sql import SqlEffectStore, SqlExecutionStore
from tests.conformance.effect_store import (
    SINK,
    EffectStoreConformance,
    intent_of,
    recorded,
)
from tests.conformance.support import Worker, eventually, started
from tests.conformance.test_memory import Clock, MemoryLedger
from tests.conformance.test_sql import SqlLedger


class TestMemoryEffects(EffectStoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryExecutionStore()

    @pytest.fixture
    def effects(self, store):
        return MemoryEffectStore(store)

    @pytest.fixture
    def ledger(self, store):
        return MemoryLedger(store)


@contextmanager
def waits_for_the_next_write(engine: sa.Engine, doing: Callable[[], object]) -> Iterator[None]:
    """While an effect is being written inside, somebody else begins something, and waits."""
    done = threading.Event()

    def do() -> None:
        doing()
        done.set()

    other = threading.Thread(target=do, daemon=True)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

    def in_flight(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE fencepost_effects"):
            other.start()
            with engine.connect() as looking:
                eventually(lambda: looking.execute(sa.text(waiting)).scalar())
            assert not done.is_set()

    sa.event.listen(engine, "before_cursor_execute", in_flight)
    try:
        yield
    finally:
        sa.event.remove(engine, "before_cursor_execute", in_flight)
    assert done.wait(10)


class SqlEffects(EffectStoreConformance):
    @pytest.fixture
    def effects(self, store):
        return SqlEffectStore(store)


class TestPostgresEffects(SqlEffects):
    @pytest.fixture
    def store(self, postgres_engine):
        return SqlExecutionStore(postgres_engine)

    @pytest.fixture
    def ledger(self, postgres_engine):
        return SqlLedger(postgres_engine)

    def test_a_takeover_waits_for_a_write_in_flight(self, store, effects, postgres_engine):
        """What the old owner has begun to write, its successor sees; or it is refused."""
        worker = started(store)
        effects.intend(intent_of(worker))
        take_over = partial(Worker.take, store, worker.execution_id)
        with waits_for_the_next_write(postgres_engine, take_over):
            record = effects.conclude(
                worker.token(), SINK, "order:42", EffectStatus.CONFIRMED, result=1
            )
        assert worker.execution.epoch == 2
        assert recorded(effects, worker).status is record.status is EffectStatus.CONFIRMED

    def test_the_way_on_waits_for_a_decision_in_flight(self, store, effects, postgres_engine):
        """Nobody calls while a person's decision about the call is being written."""
        worker = started(store)
        effects.intend(intent_of(worker))
        store.park(worker.token(), "in doubt", None)
        go_on = partial(store.unpark, worker.execution_id, "impatient")
        with waits_for_the_next_write(postgres_engine, go_on):
            effects.resolve(SINK, "order:42", landed=True, result=1, by="ada", why="I looked")
        assert worker.execution.status is Status.ACTIVE
        assert recorded(effects, worker).status is EffectStatus.CONFIRMED

    def test_a_write_waits_for_a_takeover_in_flight(self, store, effects, postgres_engine):
        worker = started(store)
        effects.intend(intent_of(worker))
        answers: list[object] = []

        def late() -> None:
            try:
                answers.append(
                    effects.conclude(
                        worker.token(), SINK, "order:42", EffectStatus.CONFIRMED, result=1
                    )
                )
            except ExecutionLeaseLostError as lost:
                answers.append(lost)

        thread = threading.Thread(target=late, daemon=True)
        with postgres_engine.execution_options(isolation_level="READ COMMITTED").begin() as taking:
            taking.execute(
                sa.text(
                    "UPDATE fencepost_executions SET epoch = 2, owner = 'new'"
                    " WHERE execution_id = :id"
                ),
                {"id": worker.execution_id},
            )
            thread.start()
            query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            with postgres_engine.connect() as looking:
                eventually(lambda: looking.execute(sa.text(query)).scalar())
            assert answers == []
        thread.join(10)
        (answer,) = answers
        assert isinstance(answer, ExecutionLeaseLostError)
        assert recorded(effects, worker).status is EffectStatus.INTENT


class TestSqliteEffects(SqlEffects):
    @pytest.fixture
    def store(self, sqlite_engine):
        return SqlExecutionStore(sqlite_engine)

    @pytest.fixture
    def ledger(self, sqlite_engine):
        return SqlLedger(sqlite_engine)


def test_in_memory_effects_age_by_the_executions_clock():
    clock = Clock()
    store = MemoryExecutionStore(clock=clock)
    effects = MemoryEffectStore(store)
    worker = started(store)
    effects.intend(intent_of(worker))
    clock.now += 60.0
    effects.announce(worker.token(), SINK, "order:42")
    clock.now += 2.5
    record = recorded(effects, worker)
    assert record.since_first_call == timedelta(seconds=62.5)
    assert record.since_last_call == timedelta(seconds=2.5)


@pytest.fixture(params=["memory", "sqlite"])
def stores(request):
    """The executions and their effects."""
    if request.param == "memory":
        memory = MemoryExecutionStore()
        return memory, MemoryEffectStore(memory)
    sql = SqlExecutionStore(request.getfixturevalue("sqlite_engine"))
    return sql, SqlEffectStore(sql)


def test_a_conclusion_has_its_crash_points(stores):
    store, effects = stores
    worker = started(store)
    effects.intend(intent_of(worker))
    seen: list[tuple[str, EffectStatus]] = []

    def hook(point: str, facts: dict[str, object]) -> None:
        assert facts == {"key": "order:42", "status": EffectStatus.CONFIRMED}
        seen.append((point, recorded(effects, worker).status))

    faults.install(hook)
    try:
        effects.conclude(worker.token(), SINK, "order:42", EffectStatus.CONFIRMED, result=1)
    finally:
        faults.install(None)
    assert seen == [
        ("effect.before-conclusion", EffectStatus.INTENT),
        ("effect.after-conclusion", EffectStatus.CONFIRMED),
    ]
