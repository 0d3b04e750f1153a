"""`examples/adopt_existing`: the project runs before and after, and crashes tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from examples.adopt_existing import shop
from examples.adopt_existing.shop import Order, gateway, mail
from fencepost.stores.sql import create_engine, migrate
from fencepost.testing import RedisServer
from fencepost.verify import verify
from tests.support import queues
from tests.support.fleet import Fleet
from tests.support.waiting import wait_for

# Of the sixteen databases of the Valkey that the acceptance tests share.
BROKER = 15
SECONDS = 40
ORDER = Order(number="A-1", item="lamp", cents=1_999, mail="ann@example.org")
CHARGED = {"order-A-1": 1_999}
RECEIPT = "ann@example.org: We have charged 19.99 for order A-1."


class Project:
    """The shop with one of the two projects behind it.

    Args:
        name: `before` or `after`.
        folder: For everything that is written.
        broker: Redis URL.
    """

    def __init__(self, name: str, folder: Path, broker: str) -> None:
        self.database_url = f"sqlite:///{folder / 'shop.db'}"
        self.broker = broker
        self.environment = {
            "SHOP_DATABASE_URL": self.database_url,
            "SHOP_FOLDER": str(folder),
            "SHOP_BROKER": broker,
            "SHOP_VISIBILITY_TIMEOUT": "3",
            "FENCEPOST_DATABASE_URL": self.database_url,
            "FENCEPOST_LEASE_TTL": "2",
        }
        self.fleet = Fleet(folder, f"examples.adopt_existing.{name}.tasks", self.environment)
        self._callers = Celery(broker=broker, backend=broker, set_as_current=False)

    def open(self) -> None:
        """Make the tables, and take an order."""
        shop.create_tables({"lamp": 10})
        shop.take_order(ORDER)
        migrate(self.database_url)

    def call(self, task: str, *arguments: Any) -> Any:
        """Call a task as other services do: by its name."""
        return self._callers.send_task(task, arguments)

    def ended(self) -> bool:
        """Whether all work is done: nothing queued or held, and no execution under way."""
        with redis.Redis.from_url(self.broker) as client:
            if client.exists(*queues.lists("celery"), "unacked"):
                return False
        return "active" not in self.statuses()

    def statuses(self) -> list[str]:
        """Of Fencepost's executions, if there are any."""
        database = create_engine(self.database_url)
        with database.connect() as connection:
            query = "SELECT status FROM fencepost_executions"
            found = [str(status) for status in connection.exec_driver_sql(query).scalars()]
        database.dispose()
        return found


@pytest.fixture
def project(
    fleet_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Project]]:
    """Starts one of the projects with two workers."""
    with ExitStack() as stack:

        def start(name: str, **environment: str) -> Project:
            fleet_redis.start()
            made = Project(name, tmp_path, fleet_redis.url_of(BROKER))
            with redis.Redis.from_url(made.broker) as client:
                client.flushdb()
            for key, value in made.environment.items():
                monkeypatch.setenv(key, value)
            stack.callback(shop.engine().dispose)
            made.open()
            stack.callback(made.fleet.stop)
            made.fleet.ready(2, **environment)
            return made

        yield start
    shop._engine.cache_clear()


def left_when_it_is_done(project: Project) -> tuple[dict[str, int], int, list[str]]:
    """Charges, pieces in stock, and mails, once nothing moves any more."""
    project.fleet.wait_for(lambda: mail.sent() and project.ended(), SECONDS, "the work to be done")
    return gateway.charges(), shop.pieces("lamp"), mail.sent()


@pytest.mark.parametrize("name", ["before", "after"])
def test_an_order_is_fulfilled(project: Callable[..., Project], name: str) -> None:
    running = project(name)
    running.call("shop.fulfil", "A-1")
    assert left_when_it_is_done(running) == (CHARGED, 9, [RECEIPT])
    if name == "after":
        # A caller that tries again finds what is there; the old project would do it all again.
        running.call("shop.fulfil", "A-1")
        assert left_when_it_is_done(running) == (CHARGED, 9, [RECEIPT])
        assert running.statuses() == ["succeeded"]


def test_before_a_worker_lost_after_the_booking_books_twice(
    project: Callable[..., Project],
) -> None:
    running = project("before", SHOP_CRASH="booked")
    running.call("shop.fulfil", "A-1")
    assert left_when_it_is_done(running) == (CHARGED, 8, [RECEIPT])


def test_after_it_books_once(project: Callable[..., Project]) -> None:
    running = project("after")
    fault = running.fleet.arm("transaction.after-commit", "kill", step="book")
    running.call("shop.fulfil", "A-1")
    fault.victim()
    running.fleet.wait_for(mail.sent, SECONDS, "the receipt")
    wait_for(lambda: running.statuses() == ["succeeded"], SECONDS, "the end")
    assert (gateway.charges(), shop.pieces("lamp"), mail.sent()) == (CHARGED, 9, [RECEIPT])
    assert verify(running.database_url, running.broker).ok


def test_before_a_worker_lost_after_the_mail_sends_two(project: Callable[..., Project]) -> None:
    running = project("before", SHOP_CRASH="mailed")
    running.call("shop.fulfil", "A-1")
    assert left_when_it_is_done(running) == (CHARGED, 9, [RECEIPT, RECEIPT])


def test_after_it_stops_for_a_person(project: Callable[..., Project]) -> None:
    running = project("after", SHOP_CRASH="mailed")
    running.call("shop.fulfil", "A-1")
    wait_for(lambda: running.statuses() == ["parked"], SECONDS, "the execution to be parked")
    assert (gateway.charges(), shop.pieces("lamp"), mail.sent()) == (CHARGED, 9, [RECEIPT])
    assert verify(running.database_url, running.broker).ok
