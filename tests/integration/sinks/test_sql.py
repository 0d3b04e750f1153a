"""SQL sinks: what the conformance suite can't ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from pydantic import BaseModel
from sqlalchemy.orm import Session

from fencepost.errors import (
    ConfigurationError,
    FencepostError,
    PayloadError,
    StaleLeaseFenceError,
)
from fencepost.sinks import Claim, SinkBusyError
from fencepost.sinks.sql import SqlSink, apply_once, check_and_advance_fence
from fencepost.sinks.tables import applied, fences, metadata, refusals
from fencepost.stores.sql import create_engine
from fencepost.testing.sinks import call, owner, patiently, successor
from tests.conformance.sinks.api import things
from tests.conformance.sinks.harnesses import append, landed_in, prepare


@pytest.fixture(params=["postgres", "sqlite"])
def engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """As a user makes it."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    prepare(url)
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def sink(engine: sa.Engine) -> SqlSink:
    return SqlSink(engine)


class Receipt(BaseModel):
    number: int


def count(engine: sa.Engine, table: sa.Table) -> int:
    with engine.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


# -- the function, in the caller's transaction ------------------------------------------------


def test_the_mark_is_part_of_the_callers_transaction(engine: sa.Engine) -> None:
    first = owner(3)
    with engine.begin() as connection:
        check_and_advance_fence(connection, first, "r")
        append(connection, "r", "a")
        connection.rollback()
    assert (count(engine, fences), landed_in(engine, "r")) == (0, [])
    with Session(engine) as session, session.begin():
        session.add_all([])
        check_and_advance_fence(session, first, "r")
        append(session, "r", "b")
    assert (count(engine, fences), landed_in(engine, "r")) == (1, ["b"])


@pytest.mark.parametrize("fence_comes_last", [False, True])
def test_a_stale_transaction_leaves_nothing(engine: sa.Engine, fence_comes_last: bool) -> None:
    zombie = owner(1)
    SqlSink(engine).advance("r", successor(zombie))

    def write() -> None:
        with engine.begin() as connection:
            if fence_comes_last:
                append(connection, "r", "late")
            check_and_advance_fence(connection, zombie, "r")
            append(connection, "r", "late")

    with pytest.raises(StaleLeaseFenceError) as caught:
        write()
    assert (caught.value.held, caught.value.current) == (1, 2)
    assert caught.value.fields["resource"] == "r"
    assert landed_in(engine, "r") == []


def test_a_connection_that_commits_by_itself_is_refused(engine: sa.Engine) -> None:
    """There the lock would be gone before the write."""
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    with alone.connect() as connection, pytest.raises(ConfigurationError, match="by itself"):
        check_and_advance_fence(connection, owner(1), "r")


def test_the_ledgers_engine_commits_by_itself_on_postgres(postgres_url: str) -> None:
    prepare(postgres_url)
    engine = create_engine(postgres_url)
    with engine.connect() as connection, pytest.raises(ConfigurationError, match="READ COMMITTED"):
        check_and_advance_fence(connection, owner(1), "r")
    engine.dispose()


def test_other_databases_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="mysql"):
        SqlSink(sa.create_mock_engine("mysql+pymysql://", executor=print))  # type: ignore[arg-type]


def test_names_are_checked_before_anything_is_sent(sink: SqlSink) -> None:
    for name in ("", "n" * 256, "a\x00b", "\ud800"):
        with pytest.raises(PayloadError):
            sink.advance(name, owner(1))
        with pytest.raises(PayloadError):
            sink.apply(Claim(key=name, token=owner(1), resource="r"), lambda _s: None)


# -- writes that fail -------------------------------------------------------------------------


def test_a_write_that_raises_leaves_neither_rows_nor_its_key(
    engine: sa.Engine, sink: SqlSink
) -> None:
    once = call("r", owner(1))

    def fails(session: Session) -> str:
        append(session, "r", "half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        sink.apply(once, fails)
    assert (landed_in(engine, "r"), count(engine, applied), count(engine, fences)) == ([], 0, 0)
    assert not sink.apply(once, lambda s: append(s, "r", "whole")).replayed


def test_a_caller_that_swallows_the_error_has_not_used_the_key_up(engine: sa.Engine) -> None:
    once = call("r", owner(1))

    def fails(session: Session) -> str:
        append(session, "r", "half")
        raise ValueError("no")

    with Session(engine) as session, session.begin():
        with pytest.raises(ValueError, match="no"):
            apply_once(session, once, fails)
        append(session, "r", "besides")
    assert (landed_in(engine, "r"), count(engine, applied)) == (["besides"], 0)


def test_a_result_that_cannot_be_stored_leaves_nothing(engine: sa.Engine, sink: SqlSink) -> None:
    def write(session: Session) -> Receipt:
        append(session, "r", "a")
        return Receipt(number=1)

    with pytest.raises(PayloadError, match="returns="):
        sink.apply(call("r", owner(1)), write)
    assert landed_in(engine, "r") == []


def test_results_come_back_as_what_they_were(sink: SqlSink) -> None:
    once = call("r", owner(1))
    for replayed in (False, True):
        receipt = sink.apply(once, lambda _s: Receipt(number=7), returns=Receipt)
        assert (receipt.result, receipt.replayed) == (Receipt(number=7), replayed)
    plain = call("r", owner(1))
    for _ in range(2):
        assert sink.apply(plain, lambda _s: {"a": [1, None]}).result == {"a": [1, None]}
    nothing = call("r", owner(1))
    for replayed in (False, True):
        receipt_of_none = sink.apply(nothing, lambda _s: None)
        assert (receipt_of_none.result, receipt_of_none.replayed) == (None, replayed)


def test_a_write_must_not_end_the_sinks_transaction(engine: sa.Engine, sink: SqlSink) -> None:
    for end in (Session.commit, Session.rollback):

        def ends(session: Session, name: str = end.__name__) -> None:
            append(session, "r", "a")
            getattr(session, name)()

        with pytest.raises(FencepostError, match="sink"):
            sink.apply(call("r", owner(1)), ends)
    assert landed_in(engine, "r") == []


# -- frozen in the middle ---------------------------------------------------------------------


def test_a_frozen_transaction_holds_its_successor_up_until_the_server_ends_it(
    postgres_url: str,
) -> None:
    prepare(postgres_url)
    engine = sa.create_engine(postgres_url)
    zombie = owner(1)
    frozen = SqlSink(engine, idle=timedelta(milliseconds=400))
    sink = SqlSink(engine, wait=timedelta(milliseconds=20))

    def frozen_in_the_middle() -> None:
        with frozen.transaction() as session:
            check_and_advance_fence(session, zombie, "r")
            append(session, "r", "late")
            with pytest.raises(SinkBusyError):
                sink.advance("r", successor(zombie))
            # The client does nothing, so its transaction is ended and rolled back.
            patiently(lambda: sink.advance("r", successor(zombie)))
            session.land()

    with pytest.raises(sa.exc.DBAPIError):
        frozen_in_the_middle()
    assert landed_in(engine, "r") == []
    with pytest.raises(StaleLeaseFenceError):
        sink.apply(call("r", zombie), lambda s: append(s, "r", "later"))
    engine.dispose()


def test_on_sqlite_a_frozen_transaction_is_reported_as_busy(sqlite_url: str) -> None:
    """Nobody ends it: it is over when its process is."""
    prepare(sqlite_url)
    engine = sa.create_engine(sqlite_url, connect_args={"timeout": 0.05})
    sink = SqlSink(engine)
    with sink.transaction() as session:
        check_and_advance_fence(session, owner(1), "r")
        with pytest.raises(SinkBusyError, match="locked"):
            sink.advance("r", owner(1))
    sink.advance("r", owner(1))
    engine.dispose()


# -- keeping house ----------------------------------------------------------------------------


def test_a_refusal_has_the_key_and_the_digest(sink: SqlSink) -> None:
    zombie = owner(1)
    sink.advance("r", successor(zombie))
    late = replace(call("r", zombie), digest="sha256:abc")
    with pytest.raises(StaleLeaseFenceError):
        sink.apply(late, lambda _s: None)
    (refusal,) = sink.refusals("r")
    assert (refusal.key, refusal.digest) == (late.key, "sha256:abc")
    assert refusal.at.utcoffset() == timedelta(0)


def test_what_is_old_is_forgotten(engine: sa.Engine, sink: SqlSink) -> None:
    old, young = call("old", owner(1)), call("young", owner(1))
    for one in (old, young):
        sink.apply(one, lambda s, r=one.resource: append(s, r, "a"))  # type: ignore[misc]
        sink.advance(one.resource, successor(one.token))
        with pytest.raises(StaleLeaseFenceError):
            sink.advance(one.resource, one.token)
    long_ago = sa.text("'2001-01-01 00:00:00'")
    with engine.begin() as connection:
        for table, column in (
            (fences, "advanced_at"),
            (applied, "applied_at"),
            (refusals, "refused_at"),
        ):
            update = sa.update(table).where(table.c.resource == "old")
            connection.execute(update.values({column: long_ago}))
    assert sink.purge(timedelta(days=30)) == 3
    assert [count(engine, table) for table in (fences, applied, refusals)] == [1, 1, 1]
    assert sink.apply(replace(young, token=successor(young.token)), lambda _s: None).replayed


def test_alembic_can_be_given_the_tables(engine: sa.Engine) -> None:
    assert set(metadata.tables) == {"fencepost_fences", "fencepost_applied", "fencepost_refusals"}
    assert things.metadata is not metadata
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={"include_name": lambda name, kind, _: kind != "table" or name in metadata.tables},
        )
        assert compare_metadata(context, metadata) == []
