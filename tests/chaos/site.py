"""All that a run needs: servers, links, sinks, workers, and a client that starts work."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg
import redis
import sqlalchemy as sa

import fencepost
from fencepost.celery.hardening import hardened
from fencepost.stores.sql import create_engine, migrate
from fencepost.testing import PostgresServer, RedisServer
from tests.chaos import bank, shop
from tests.chaos.bank import Bank
from tests.chaos.disk import SmallDisk
from tests.chaos.fleet import Supervisor
from tests.chaos.history import History
from tests.chaos.network import Network
from tests.chaos.warehouse import Warehouse

ROOT = Path(__file__).parents[2]
STEPPED = Path(__file__).parent / "stepped"

SHORT_VISIBILITY = int(shop.LEASE_TTL.total_seconds())
"""Seconds: below what a long step takes, and as short as a worker starts with."""

CLIENT = "client"


@dataclass(frozen=True)
class Options:
    """What a run is.

    Attributes:
        minutes: How long the nemesis acts.
        seed: What it draws from.
        database: `postgres` or `sqlite`.
        unfenced: Whether the guards are off.
        workers: How many.
        rate: Executions started each second.
    """

    minutes: float
    seed: int
    database: str = "postgres"
    unfenced: bool = False
    workers: int = 3
    rate: float = 1.0

    def command(self) -> str:
        """What repeats the run."""
        given = [f"--minutes {self.minutes:g}", f"--seed {self.seed}"]
        if self.database != "postgres":
            given.append(f"--database {self.database}")
        if self.unfenced:
            given.append("--unfenced")
        if self.workers != Options.workers:
            given.append(f"--workers {self.workers}")
        if self.rate != Options.rate:
            given.append(f"--rate {self.rate:g}")
        return " ".join(["python -m tests.chaos", *given])


class Site:
    """A fleet with its servers, healthy until somebody does something to it.

    Args:
        folder: For everything that is kept.
        options: What the run is.
        history: Where workers' starts and ends are written.

    Attributes:
        calm: Set once nothing more shall be done to it.
    """

    def __init__(self, folder: Path, options: Options, history: History) -> None:
        self.folder, self.options = folder, options
        self.calm = threading.Event()
        self._stack = ExitStack()
        self.redis_server: RedisServer
        self.postgres: PostgresServer | None = None
        self.disk: SmallDisk | None = None
        self.database_url = f"sqlite:///{folder / 'fencepost.sqlite3'}"
        self.warehouse_url = f"sqlite:///{folder / 'warehouse.sqlite3'}"
        try:
            self._build(history)
        except BaseException:
            self._stack.close()
            raise

    def _build(self, history: History) -> None:
        enter = self._stack.enter_context
        self.redis_server = enter(RedisServer(self.folder / "redis"))
        if self.options.database == "postgres":
            self._build_postgres()
        self.bank = Bank(self.folder, fenced=not self.options.unfenced)
        self._stack.callback(self.bank.close)
        self._build_tables()
        self.network = enter(Network())
        (self.folder / "clock").mkdir()
        (self.folder / "logs").mkdir()
        names = [f"w{number}" for number in range(1, self.options.workers + 1)]
        self.supervisor = Supervisor(
            self.folder / "logs", {name: self._environment(name) for name in names}, history
        )
        self._stack.callback(self.supervisor.stop)
        self.fp = self._client()
        self._stack.callback(self.fp.database.dispose)

    def _build_postgres(self) -> None:
        settings = {"max_connections": "300"}
        folder = self.folder / "postgres"
        # The disk first: the server must end before it.
        self.disk = SmallDisk.make(self._stack)
        server = PostgresServer(folder, fsync=False, settings=settings)
        self.postgres = self._stack.enter_context(server)
        with psycopg.connect(server.dsn_of("postgres"), autocommit=True) as connection:
            where = b""
            if self.disk is not None:
                command = f"CREATE TABLESPACE small LOCATION '{self.disk.folder}'"
                connection.execute(command.encode())
                where = b" TABLESPACE small"
            for name in (b"shop", b"warehouse"):
                connection.execute(b"CREATE DATABASE " + name + where)
        self.database_url, self.warehouse_url = server.url_of("shop"), server.url_of("warehouse")

    def _build_tables(self) -> None:
        migrate(self.database_url)
        engine = create_engine(self.database_url)
        shop.metadata.create_all(engine)
        if self.options.unfenced:
            with engine.begin() as connection:
                connection.execute(sa.text("CREATE TABLE coordinator_unfenced_demo (made integer)"))
        engine.dispose()
        engine = create_engine(self.warehouse_url)
        Warehouse(engine).create()
        engine.dispose()

    # -- workers and client ----------------------------------------------------------------

    def _links(self, name: str) -> dict[str, str]:
        """Open a client's way to each server; returns where to find them."""
        ports = {
            "redis": self.network.link(f"{name}-redis", self.redis_server.port).port,
            "bank": self.network.link(f"{name}-bank", self.bank.port).port,
        }
        urls = {
            "redis": f"redis://127.0.0.1:{ports['redis']}/0",
            "bank": f"http://127.0.0.1:{ports['bank']}",
            "database": self.database_url,
            "warehouse": self.warehouse_url,
        }
        if self.postgres is not None:
            port = self.network.link(f"{name}-postgres", self.postgres.port).port
            for which in ("database", "warehouse"):
                url = sa.make_url(urls[which]).set(port=port)
                urls[which] = url.render_as_string(hide_password=False)
        return urls

    def _settings(self, urls: Mapping[str, str]) -> dict[str, Any]:
        return {
            "database_url": urls["database"],
            "lease_ttl": shop.LEASE_TTL.total_seconds(),
            "max_recoveries": shop.MAX_RECOVERIES,
            "start_grace": 3.0,
        }

    def _environment(self, name: str) -> dict[str, str]:
        urls = self._links(name)
        settings = self._settings(urls)
        short = int(name.removeprefix("w")) % 2 == 1
        conf = _conf(visibility=SHORT_VISIBILITY if short else 60)
        return {
            **{f"FENCEPOST_{key.upper()}": str(value) for key, value in settings.items()},
            "CHAOS_BROKER": urls["redis"],
            "CHAOS_CONF": json.dumps(conf),
            "CHAOS_CLOCK": str(self.clock(name)),
            "CHAOS_UNFENCED": "1" if self.options.unfenced else "",
            bank.ADDRESS: urls["bank"],
            shop.WAREHOUSE: urls["warehouse"],
            "PYTHONPATH": os.pathsep.join((str(STEPPED), str(ROOT))),
        }

    def clock(self, name: str) -> Path:
        """The file with the seconds by which a worker's wall clock is wrong."""
        return self.folder / "clock" / name

    def _client(self) -> fencepost.Fencepost:
        urls = self._links(CLIENT)
        conf = _conf(visibility=60)
        return shop.make(urls["redis"], conf, **self._settings(urls))

    def redis(self, timeout: float = 1.0) -> redis.Redis:
        """A client of the broker, not through a link."""
        return redis.Redis.from_url(
            self.redis_server.url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
        )

    def connect(self) -> psycopg.Connection[Any]:
        """A connection to the ledger's database on PostgreSQL, not through a link."""
        assert self.postgres is not None
        dsn = self.postgres.dsn_of("shop")
        return psycopg.connect(dsn, autocommit=True, connect_timeout=2, application_name="nemesis")

    # -- the end ---------------------------------------------------------------------------

    def heal(self) -> None:
        """Undo all that a nemesis can do to servers, links, clocks and workers."""
        self.supervisor.thaw()
        self.network.heal()
        if self.disk is not None:
            self.disk.clear()
        for clock in (self.folder / "clock").iterdir():
            clock.unlink()
        self.redis_server.start()
        client: Any = self.redis(5.0)
        with contextlib.closing(client):
            client.execute_command("REPLICAOF", "NO", "ONE")
            client.config_set("maxmemory", "0")
        if self.postgres is not None:
            self.postgres.start()

    def close(self) -> None:
        """End everything."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _conf(*, visibility: int) -> dict[str, Any]:
    transport = hardened(shop.LEASE_TTL)["broker_transport_options"]
    changed = {
        "visibility_timeout": visibility,
        "unacked_restore_interval": 1,
        "socket_timeout": 4,
        "socket_connect_timeout": 2,
        "health_check_interval": 5,
    }
    return {
        "broker_transport_options": {**transport, **changed},
        "result_backend_transport_options": {"retry_policy": {"timeout": 2.0}},
        "redis_socket_timeout": 4,
        "redis_socket_connect_timeout": 2,
        # A supervisor restarts what gives up.
        "broker_connection_max_retries": None,
    }


def temporary_folder() -> Path:
    """A new folder for a run that nobody has named one for."""
    return Path(tempfile.mkdtemp(prefix="fencepost-chaos-"))


def remove(folder: Path) -> None:
    """Remove a run's folder."""
    shutil.rmtree(folder, ignore_errors=True)
