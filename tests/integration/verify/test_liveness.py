"""What Redis and the broker still hold of a run that has ended: real leases, real messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from celery import Celery

from fencepost.errors import ServiceUnavailableError
from fencepost.testing import RedisServer
from fencepost.verify import Verdict, liveness, verifier, verify
from tests.integration.verify.story import Order, release, tell
from tests.support.inline import Inline


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    yield client
    client.close()


@pytest.fixture
def fleet(sqlite_url: str, redis_url: str) -> Iterator[Inline]:
    fleet = Inline(sqlite_url, [release], redis_url=redis_url)
    yield fleet
    fleet.close()


@pytest.fixture
def root(fleet: Inline) -> UUID:
    return tell(fleet)


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    app = Celery("broker", broker=redis_url, set_as_current=False)
    yield app
    app.close()


@pytest.fixture
def check(sqlite_url: str, redis_url: str, root: UUID) -> Callable[..., Any]:
    def check(**how: Any) -> Any:
        return verify(sqlite_url, redis_url, redis_url, **{"run": root, **how})

    return check


class Clock:
    """Time that passes only while the verifier waits."""

    def __init__(self, *waits: Callable[[], object], each: float = 1.0) -> None:
        self.waits = list(waits)
        self._each = each
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, _seconds: float) -> None:
        self._now += self._each
        if self.waits:
            self.waits.pop(0)()


def codes(report: Any) -> list[tuple[int, str]]:
    return [(violation.invariant, violation.code) for violation in report.violations]


def test_a_healthy_run_leaves_nothing_behind(check, root):
    report = check()
    assert report.ok
    assert report.violations == []
    assert report.line(7).verdict is Verdict.OK
    assert not any("not looked at" in note for line in report.invariants for note in line.notes)


def test_without_urls_the_report_says_what_was_not_looked_at(sqlite_url, root):
    report = verify(sqlite_url, run=root)
    assert "no Redis URL" in " ".join(report.line(2).notes)
    assert "no Redis URL" in " ".join(report.line(7).notes)
    assert "no broker URL" in " ".join(report.line(7).notes)


def test_a_broker_that_cannot_be_read_is_said_to_be(sqlite_url, root):
    report = verify(sqlite_url, None, "amqp://guest@localhost//", run=root)
    assert "a broker of kind amqp can't be read" in " ".join(report.line(7).notes)


def test_redis_ahead_of_sql(check, client, root):
    client.hset(f"fencepost:lease:{root}", "epoch", 99)
    report = check()
    assert codes(report) == [(2, "epoch.redis-ahead")]
    assert report.violations[0].facts == {"redis": 99, "sql": 4}


def test_a_remembered_epoch_that_sql_has_reached_is_no_breach(check, client, root):
    client.hset(f"fencepost:lease:{root}", "epoch", 4)
    report = check()
    assert report.ok
    assert report.line(2).examined["settled epochs"] == 1


def test_an_epoch_that_sql_reaches_after_the_snapshot_is_no_breach(
    check, client, fleet, root, monkeypatch
):
    """SQL is read first: what Redis settles meanwhile has a later row behind it."""
    client.hset(f"fencepost:lease:{root}", "epoch", 5)
    read = liveness.RedisReader.leases

    def meanwhile(reader: Any, *args: Any) -> Any:
        with fleet.database.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE fencepost_executions SET epoch = 5 WHERE execution_id = ?", (root.hex,)
            )
        return read(reader, *args)

    monkeypatch.setattr(liveness.RedisReader, "leases", meanwhile)
    assert check().ok


def test_a_lease_of_a_finished_execution(check, client, root):
    client.hset(f"fencepost:lease:{root}", mapping={"owner": "w1", "epoch": 4, "expires": 1})
    report = check()
    assert codes(report) == [(7, "orphan.lease")]
    assert report.violations[0].transient


def test_an_entry_of_a_finished_execution_among_the_held_leases(check, client, root):
    client.zadd("fencepost:leases", {str(root): 1})
    assert codes(check()) == [(7, "orphan.lease")]


def test_leases_below_another_prefix(check, client, root):
    client.zadd("theirs:leases", {str(root): 1})
    assert check().ok
    assert codes(check(redis_prefix="theirs:")) == [(7, "orphan.lease")]


@pytest.mark.parametrize("task", ["fencepost.run", "fencepost.join"])
@pytest.mark.parametrize("queue", ["celery", "another"])
def test_a_queued_message_for_a_finished_execution(check, app, root, task, queue):
    where = {"queue": queue} if task == "fencepost.run" else {}
    app.send_task(task, (str(root),), where, queue=queue, task_id=f"{root}-x")
    report = check()
    assert codes(report) == [(7, "orphan.message")]
    assert report.violations[0].facts == {"task": task, "place": queue}


def test_a_queued_message_of_low_priority(check, app, root):
    app.send_task("fencepost.run", (str(root),), priority=9)
    assert codes(check()) == [(7, "orphan.message")]


def test_an_unacknowledged_message_for_a_finished_execution(check, app, root):
    app.send_task("fencepost.run", (str(root),))
    with app.connection() as connection, connection.channel() as channel:
        taken = channel.basic_get("celery")
        assert taken is not None
        report = check()
        assert codes(report) == [(7, "orphan.message")]
        assert report.violations[0].facts["place"] == "unacked"
        taken.ack()
    assert check().ok


def test_messages_of_others_are_nobodys_business(check, app, client, root):
    app.send_task("theirs", (str(root),))
    client.rpush("numbers", 1, 2, 3)
    client.rpush("words", "no JSON", '{"headers": 7}', "[]")
    client.hset("theirs-unacked", "tag", "[7]")
    report = check()
    assert report.ok
    assert "messages" not in report.line(7).examined


def test_a_message_for_what_is_still_live_is_counted_and_no_breach(check, app, fleet, root):
    live = fleet.start(release, Order(count=1))
    app.send_task("fencepost.run", (str(live),))
    report = check(run=None)
    assert report.ok
    assert report.line(7).examined["messages"] == 1


def test_settling_waits_until_a_late_duplicate_is_gone(check, client, app, root, monkeypatch):
    app.send_task("fencepost.run", (str(root),))
    client.zadd("fencepost:leases", {str(root): 1})
    clock = Clock(lambda: client.delete("celery"), lambda: client.delete("fencepost:leases"))
    monkeypatch.setattr(verifier, "time", clock)
    report = check(settle=timedelta(seconds=60))
    assert report.ok
    assert clock.waits == []
    assert report.waited == 2.0


def test_settling_ends_when_its_time_is_over(check, client, root, monkeypatch):
    client.zadd("fencepost:leases", {str(root): 1})
    monkeypatch.setattr(verifier, "time", Clock(each=5.0))
    report = check(settle=timedelta(seconds=10))
    assert codes(report) == [(7, "orphan.lease")]
    assert report.waited == 10.0


def test_settling_does_not_wait_for_what_will_not_go_away(check, client, root, monkeypatch):
    client.hset(f"fencepost:lease:{root}", "epoch", 99)
    monkeypatch.setattr(verifier, "time", Clock(lambda: pytest.fail("waited")))
    assert codes(check(settle=timedelta(seconds=60))) == [(2, "epoch.redis-ahead")]


def test_a_redis_that_does_not_answer_is_named_without_its_password(
    sqlite_url, root, redis_server: RedisServer
):
    with pytest.raises(ServiceUnavailableError) as caught:
        verify(sqlite_url, "redis://:secret@127.0.0.1:1/0", run=root)
    assert "127.0.0.1:1" in str(caught.value)
    assert "secret" not in str(caught.value)
