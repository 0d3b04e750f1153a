"""What a committed step costs on the wire."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import redis
from celery import Celery

import fencepost
from fencepost import Saga, Status, StepContext, step
from fencepost.stores.sql import migrate
from tests.support.wire import WireTap

STEPS = 12
"""More than the five executions after which psycopg would prepare a statement on the server."""

Look = Callable[[], tuple[int, int]]


def line_of(steps: int, look: Look, seen: list[tuple[int, int]]) -> Saga[int, int]:
    """A saga of plain steps, each of which notes what has been sent when its body begins."""
    saga = Saga("counted", input=int)
    for number in range(steps):

        @step(name=f"step-{number}")
        def body(ctx: StepContext, value: int) -> int:
            seen.append(look())
            return value + 1

        saga = saga.then(body)
    return saga


@pytest.fixture
def seen() -> list[tuple[int, int]]:
    return []


def test_a_committed_step_is_one_round_trip_to_postgresql_and_none_to_redis(
    postgres_url: str, redis_url: str, seen: list[tuple[int, int]]
) -> None:
    migrate(postgres_url)
    observer = redis.Redis.from_url(redis_url)
    observer.ping()
    asked = 0

    def look() -> tuple[int, int]:
        nonlocal asked
        asked += 1
        stats: Any = observer.info("stats")
        # Each question of our own is counted too, itself included.
        return tap.round_trips(), int(stats["total_commands_processed"]) - asked

    with WireTap(postgres_url) as tap:
        saga = line_of(STEPS, look, seen)
        app = Celery("counted", broker=redis_url, set_as_current=False)
        fp = fencepost.install(app, sagas=[saga], database_url=tap.url, lease_ttl=600)
        execution, _ = fp.engine.create(saga, 0)
        outcome = fp.engine.run(execution.execution_id)
        last = look()
        statements = [m.body for m in tap.messages() if m.kind in "QP"]
        fp.database.dispose()
    assert outcome.status is Status.SUCCEEDED
    assert outcome.result == STEPS
    assert len(seen) == STEPS

    between = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(seen)]
    assert between == [(1, 0)] * (STEPS - 1)
    # The end rides on the last commit; only then is Redis asked to forget the lease.
    assert last[0] - seen[-1][0] == 1
    commits = [sql for sql in statements if b"INSERT INTO fencepost_checkpoints" in sql]
    assert any(b"UPDATE fencepost_executions" in sql for sql in commits)


def test_what_the_tap_counts(postgres_url: str) -> None:
    """The measure itself: a known number of questions gives that number."""
    import psycopg

    with WireTap(postgres_url) as tap:
        dsn = tap.url.replace("postgresql+psycopg://", "postgresql://")
        with psycopg.connect(dsn, autocommit=True) as connection:
            before = tap.round_trips()
            for _ in range(3):
                connection.execute("SELECT %s::int", [1])
            assert tap.round_trips() - before == 3
            connection.execute("SELECT 1; SELECT 2")
            assert tap.round_trips() - before == 4
            with connection.transaction():  # BEGIN, the statement, COMMIT
                connection.execute("SELECT 3")
            assert tap.round_trips() - before == 7
