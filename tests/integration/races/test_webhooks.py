"""Webhooks: the provider tells too, earlier, later, twice, or while the answer is on its way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from tests.acceptance.races import books
from tests.acceptance.races.books import Payment
from tests.integration.races.bench import Bench
from tests.support.waiting import wait_for


def event_of(bench: Bench, order: str) -> tuple[str, Payment]:
    """What the provider's webhook says of the order's charge: its id, and the payment."""
    (charge,) = bench.banks["dedupes"].audit(order)["transfers"]
    payment = Payment(order=order, cents=charge["amount_cents"], charge=charge["id"])
    return f"evt_{charge['id']}", payment


def receive(bench: Bench, order: str) -> UUID:
    """The endpoint: it starts an execution under the event's id, and answers."""
    event_id, payment = event_of(bench, order)
    return bench.start(books.payment_event, payment, key=event_id)


def credited(bench: Bench, order: str) -> list[tuple[int, str]]:
    table = books.credits_
    query = sa.select(table.c.cents, table.c.source).where(table.c.order_id == order)
    with bench.database.connect() as connection:
        return [(cents, source) for cents, source in connection.execute(query)]


def waiting(bench: Bench) -> int:
    """Transactions that wait for another one to end."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with bench.database.connect() as connection:
        return int(connection.exec_driver_sql(query).scalar_one())


def test_the_webhook_comes_before_the_response(bench: Bench, order: str) -> None:
    response = bench.start(books.top_up, bench.money(order))
    bench.queue.clear()
    seen: list[Any] = []

    def webhook() -> None:
        seen.append(receive(bench, order))
        bench.drain()
        assert credited(bench, order) == [(1_000, "from_webhook")]

    with bench.meanwhile("shop.landed", webhook):
        bench.deliver(response)
    bench.drain()
    assert bench.result(response) == bench.result(seen[0]) == 1_000
    assert credited(bench, order) == [(1_000, "from_webhook")]


def test_the_webhook_comes_and_the_response_never(bench: Bench, order: str) -> None:
    response = bench.start(books.top_up, bench.money(order))
    bench.queue.clear()
    with bench.killed_at("shop.landed"):
        bench.deliver(response)
    webhook = receive(bench, order)
    bench.drain()
    bench.dispatch(bench.row(response))
    bench.drain()
    assert bench.result(response) == bench.result(webhook)
    assert credited(bench, order) == [(1_000, "from_webhook")]
    assert bench.banks["dedupes"].booked(order, "charge") == [1_000]


def test_the_webhook_comes_after_the_response(bench: Bench, order: str) -> None:
    bench.result(bench.run(books.top_up, bench.money(order)))
    receive(bench, order)
    bench.drain()
    assert credited(bench, order) == [(1_000, "from_response")]


def test_the_webhook_comes_twice(bench: Bench, order: str) -> None:
    bench.banks["dedupes"].charge(order, 1_000)
    with ThreadPoolExecutor(4) as endpoint:
        ids = list(endpoint.map(lambda _: receive(bench, order), range(4)))
    assert len(set(ids)) == 1
    bench.drain()
    again = receive(bench, order)
    bench.drain()
    assert again == ids[0]
    assert credited(bench, order) == [(1_000, "from_webhook")]


def test_webhook_and_response_credit_in_the_same_moment(bench: Bench, order: str) -> None:
    """Both are between their key and their commit; one waits for the other's transaction."""
    response = bench.start(books.top_up, bench.money(order))
    bench.queue.clear()
    with ThreadPoolExecutor(1) as elsewhere:
        running: list[Any] = []

        def meet() -> None:
            webhook = receive(bench, order)
            running.append((webhook, elsewhere.submit(bench.deliver, webhook)))
            wait_for(lambda: waiting(bench), 10, "the webhook to wait for our transaction")

        with bench.meanwhile("effect.applied", meet, effect="credit"):
            bench.deliver(response)
        webhook, done = running[0]
        done.result(20)
    bench.drain()
    assert bench.result(webhook) == bench.result(response) == 1_000
    assert credited(bench, order) == [(1_000, "from_response")]


def test_the_webhooks_handler_pays_under_the_same_key(bench: Bench, order: str) -> None:
    """'The payment can be captured now' arrives while the response path captures it."""
    response = bench.start(books.capture_from_response, bench.money(order))
    handler = bench.start(books.capture_from_webhook, bench.money(order))
    bench.queue.clear()
    with bench.meanwhile("shop.sending", lambda: bench.deliver(handler)):
        bench.deliver(response)
    bench.patiently(handler)
    assert bench.result(handler) == bench.result(response)
    assert bench.banks["dedupes"].booked(order, "charge") == [1_000]
