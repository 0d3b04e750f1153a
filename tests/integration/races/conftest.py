"""Races in one process: real engine, PostgreSQL, real providers; a test decides every order."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from fencepost.testing import PostgresServer
from tests.acceptance.races import books, shop, stories
from tests.acceptance.races.bank import Banks, open_banks
from tests.integration.races.bench import Bench


@pytest.fixture(scope="session")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Banks]:
    """One provider process of each mode."""
    with open_banks(tmp_path_factory.mktemp("banks")) as opened:
        yield opened


@pytest.fixture(scope="session")
def _bench(postgres_server: PostgresServer, banks: Banks) -> Iterator[Bench]:
    postgres_server.start()
    url = postgres_server.create_database("races")
    bench = Bench(url, [*shop.refunds.values(), *stories.ALL, *books.ALL], banks)
    yield bench
    bench.close()
    postgres_server.drop_database("races")


@pytest.fixture
def bench(_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """An empty ledger, and the world as it was."""
    for name, value in _bench.banks.environment.items():
        monkeypatch.setenv(name, value)
    _bench.reset()
    yield _bench
    _bench.settle()


@pytest.fixture
def order() -> str:
    """An order of the test's own."""
    return f"order-{uuid4().hex[:8]}"
