"""The refund agent of `examples/` on real workers, with providers that count."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from examples.refund_agent import model
from examples.refund_agent.payments import Payments
from examples.refund_agent.play import refunds_in
from examples.refund_agent.provider import Mode, serve
from examples.refund_agent.shop import Complaint, Order, Orders
from fencepost import Handle, Status
from fencepost.agents import AgentResult
from fencepost.stores.sql import migrate
from fencepost.testing import PostgresServer, RedisServer
from fencepost.verify import verify
from tests.support.fleet import Fleet, Worker

WORKERS = 3
LEASE_TTL = 2.0
END_SECONDS = 40.0
# Of the sixteen databases of the Valkey that the acceptance tests share.
BROKER = 14


class RefundScene:
    """Workers, a provider in each mode, and what a test asks them.

    Args:
        folder: For everything that is written.
        database_url: An empty database.
        broker: Redis URL.
    """

    def __init__(self, folder: Path, database_url: str, broker: str) -> None:
        self.database_url, self.broker = database_url, broker
        self.orders, self.log = Orders(folder / "orders"), folder / "model"
        self._servers = [serve(mode, folder / f"{mode}.sqlite3") for mode in Mode]
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        urls = [f"http://127.0.0.1:{server.server_port}" for server in self._servers]
        self.providers = {mode: Payments(url) for mode, url in zip(Mode, urls, strict=True)}
        migrate(database_url)
        environment = {
            "REFUND_BROKER": broker,
            "REFUND_ORDERS": str(folder / "orders"),
            "REFUND_MODEL_LOG": str(self.log),
            "FENCEPOST_DATABASE_URL": database_url,
            "FENCEPOST_LEASE_TTL": str(LEASE_TTL),
            **{f"REFUND_PROVIDER_{m.upper()}": p.url for m, p in self.providers.items()},
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            from examples.refund_agent import fencepost_app
        self.fp, self._task = fencepost_app.fp, fencepost_app.handle_complaint
        self.fleet = Fleet(folder, "examples.refund_agent.fencepost_app", environment)
        self._numbers = iter(range(1, 1_000))

    def complain(self, mode: Mode, *, late: bool = False) -> tuple[str, Handle[AgentResult]]:
        """Start the agent on a new order; returns the order's number too."""
        order_id = f"order-{next(self._numbers)}"
        self.orders.add(
            Order(
                order_id=order_id,
                total_cents=10_000,
                arrived=True,
                days_late=9 if late else 0,
                condition="fine" if late else "damaged",
            )
        )
        self.providers[mode].charge(order_id, 10_000)
        text = f"My order {order_id} is a disappointment."
        complaint = Complaint(id=order_id, text=text, provider=mode)
        return order_id, self.fp.start(self._task, complaint, key=order_id)

    def ends(self, handle: Handle[Any]) -> Status:
        """Wait until it has ended or is parked."""
        try:
            return handle.wait(END_SECONDS).status
        except TimeoutError as late:
            raise AssertionError(f"{late}\n{self.fleet.logs()}") from None

    def refunds(self, mode: Mode, order_id: str) -> list[int]:
        """Of the provider's ledger: amounts in cents."""
        return refunds_in(self.providers[mode].audit(order_id))

    def refusals(self, mode: Mode, order_id: str) -> list[str]:
        """What the provider has refused: codes."""
        return [one["code"] for one in self.providers[mode].audit(order_id)["refusals"]]

    def model_calls(self, order_id: str) -> int:
        """How often the model has answered about an order."""
        return sum(call["order"] == order_id for call in model.calls_made(self.log))

    def zombie_ends(self, worker: Worker, execution_id: UUID) -> None:
        """Wait until a thawed worker's copy has dropped out."""
        ignored = f"[{execution_id}] ignored"
        self.fleet.wait_for(lambda: ignored in worker.log(), 15, "the zombie to drop out")

    def refill(self) -> None:
        """Thaw all, forget faults, and replace the dead."""
        self.fleet.disarm()
        for worker in self.fleet.alive:
            worker.signal_group(signal.SIGCONT)
        self.fleet.start(max(0, WORKERS - len(self.fleet.alive)))
        for worker in self.fleet.alive[: WORKERS - 1]:
            worker.await_ready()

    def assert_verified(self) -> None:
        """The invariants hold in what is stored.

        The broker isn't looked at: what a killed worker had stays there for an hour.
        """
        report = verify(self.database_url, self.broker)
        assert report.ok, report.violations

    def close(self) -> None:
        """End everything."""
        self.fleet.stop()
        self.fp.database.dispose()
        for server in self._servers:
            server.shutdown()
            server.server_close()


@pytest.fixture(scope="module")
def _refund_scene(
    fleet_redis: RedisServer,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RefundScene]:
    folder = tmp_path_factory.mktemp("refunds")
    postgres_server.start()
    database_url = postgres_server.create_database(f"refunds_{os.getpid()}")
    with ExitStack() as stack:
        stack.callback(postgres_server.drop_database, f"refunds_{os.getpid()}")
        scene = RefundScene(folder, database_url, fleet_redis.url_of(BROKER))
        stack.callback(scene.close)
        yield scene


@pytest.fixture
def scene(_refund_scene: RefundScene) -> Iterator[RefundScene]:
    """Enough workers that take messages, and no fault armed."""
    _refund_scene.refill()
    yield _refund_scene
    _refund_scene.fleet.disarm()
