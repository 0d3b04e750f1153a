"""The servers of the conformance suite, and a fleet that writes to all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost import Handle
from fencepost.stores.sql import migrate
from fencepost.testing import PostgresServer, RedisServer, embedded_redis
from fencepost.testing.sinks import SinkUnderTest
from tests.conformance.sinks import s3
from tests.conformance.sinks.harnesses import prepare
from tests.conformance.sinks.serving import served_api
from tests.integration.sinks import market
from tests.support.fleet import Fleet, Worker
from tests.support.waiting import wait_for

WORKERS = 3


@dataclass
class Market:
    """Workers, and the sinks that they write to."""

    fp: fencepost.Fencepost
    fleet: Fleet
    sagas: dict[str, Any]
    sinks: dict[str, SinkUnderTest]

    def start(self, name: str, reference: str) -> Handle[str]:
        return self.fp.start(self.sagas[name], market.Order(reference=reference))

    def await_dropped(self, worker: Worker, handle: Handle[str]) -> None:
        ignored = f"[{handle.execution_id}] ignored"
        wait_for(lambda: ignored in worker.log(), 20, f"the zombie to drop out: {worker.log()}")


@pytest.fixture(scope="module")
def another_postgres(postgres_server: PostgresServer) -> str:
    """Not the ledger's."""
    postgres_server.start()
    url = postgres_server.create_database("market_sinks")
    prepare(url)
    return url


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with embedded_redis(tmp_path_factory.mktemp("market-redis")) as redis:
        yield redis


@pytest.fixture(scope="module")
def addresses(
    servers: RedisServer, another_postgres: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[str]]]:
    folder = tmp_path_factory.mktemp("market")
    sqlite = f"sqlite:///{folder / 'another.sqlite3'}"
    prepare(sqlite)
    with s3.serve() as objects, served_api(another_postgres, folder) as api:
        yield {
            "postgres": [another_postgres],
            "sqlite": [sqlite],
            "redis": [servers.url_of(1)],
            "files": [str(folder / "files")],
            "objects": [objects],
            "server": [another_postgres, api],
        }


@pytest.fixture(scope="module")
def running(
    servers: RedisServer,
    postgres_server: PostgresServer,
    addresses: dict[str, list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Market]:
    folder: Path = tmp_path_factory.mktemp("market-fleet")
    ledger = postgres_server.create_database("market_ledger")
    migrate(ledger)
    settings = {"database_url": ledger, "lease_ttl": 1.5, "reaper_interval": 0.2}
    sagas = market.sagas_for(addresses)
    fp = market.make(servers.url_of(0), sagas, **settings)
    environment = {f"FENCEPOST_{name.upper()}": str(value) for name, value in settings.items()}
    environment |= {"MARKET_BROKER": servers.url_of(0), "MARKET_SINKS": json.dumps(addresses)}
    with Fleet(folder, "tests.integration.sinks.market", environment) as fleet:
        fleet.ready(WORKERS)
        yield Market(
            fp,
            fleet,
            sagas,
            {name: market.OPEN[name](*where) for name, where in addresses.items()},
        )
    fp.database.dispose()


@pytest.fixture
def fleet_of_market(running: Market) -> Iterator[Market]:
    """The module's market; nobody stays frozen, and no fault stays armed."""
    yield running
    running.fleet.disarm()
    for worker in running.fleet.alive:
        worker.thaw()
