"""Real workers, real providers, PostgreSQL, and a Valkey that nobody else uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from fencepost.testing import PostgresServer, embedded_redis
from tests.acceptance.races.bank import Banks, open_banks
from tests.acceptance.races.fleet import Shop

WORKERS = 3


@pytest.fixture(scope="session")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Banks]:
    """One provider process of each mode."""
    with open_banks(tmp_path_factory.mktemp("banks")) as opened:
        yield opened


@pytest.fixture(scope="session")
def _shop(
    postgres_server: PostgresServer, banks: Banks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("races")
    postgres_server.start()
    database = postgres_server.create_database("races_fleet")
    with embedded_redis(folder / "redis") as redis_server:
        shop = Shop(folder, database, redis_server.url, banks)
        try:
            yield shop
        finally:
            shop.close()
    postgres_server.drop_database("races_fleet")


@pytest.fixture
def shop(_shop: Shop) -> Iterator[Shop]:
    """The shop with its workers, no fault armed."""
    _shop.refill(WORKERS)
    yield _shop
    _shop.fleet.disarm()


@pytest.fixture
def order() -> str:
    """An order of the test's own."""
    return f"order-{uuid4().hex[:8]}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """For a fleet of Celery alone."""
    return tmp_path
