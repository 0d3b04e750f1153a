"""Where a scenario plays: servers, folders, and what the workers are told about them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import ledger
from coordinator import unfenced
from coordinator.composition import Factory, compose
from coordinator.settings import CoordinatorSettings
from fencepost import faults
from fencepost.stores.sql import migrate
from fencepost.testing import embedded_postgres, embedded_redis
from ledger.publishing import PublishStore
from ledger.staging import StagingStore

SQLITE_FILE = "fencepost.sqlite3"
SHORTEST_VISIBILITY = 10


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers that are there already, by URL; None for those that a scenario shall start."""

    database: str | None = None
    broker: str | None = None
    redis: str | None = None


@dataclass(frozen=True)
class Site:
    """A scenario's servers and folders.

    Attributes:
        folder: `runs/<id>`, where everything goes that is worth keeping.
        settings: The servers, the lease time.
        servers: Those of them that were there already.
        planner: Environment of the workers' planner.
    """

    folder: Path
    settings: CoordinatorSettings
    servers: Servers
    planner: Mapping[str, str]

    @property
    def run_id(self) -> str:
        """The name of the run's folder."""
        return self.folder.name

    @property
    def staging(self) -> StagingStore:
        """The staging store of this site's workers."""
        return StagingStore(self.folder / "artifacts" / "staging")

    @property
    def published(self) -> PublishStore:
        """The publish store of this site's workers."""
        return PublishStore(self.folder / "artifacts" / "published")

    @property
    def faults(self) -> Path:
        """Where the workers look for fault plans."""
        return self.folder / "faults"

    @property
    def logs(self) -> Path:
        """Where the workers' logs are."""
        return self.folder / "logs"

    def environment(self) -> dict[str, str]:
        """What the workers are told."""
        settings = self.settings
        told = {
            "FENCEPOST_DATABASE_URL": settings.database,
            "FENCEPOST_BROKER_URL": settings.broker,
            "FENCEPOST_REDIS_URL": settings.leases,
            "FENCEPOST_LEASE_TTL": f"{settings.lease_ttl:g}",
            "FENCEPOST_VISIBILITY_TIMEOUT": str(settings.visibility_timeout or ""),
            "FACTORY_UNFENCED": "1" if settings.unfenced else "",
            "FACTORY_STAGING_DIR": str(self.staging.root),
            "FACTORY_PUBLISH_DIR": str(self.published.root),
            faults.ENVIRONMENT: str(self.faults),
        }
        return told | dict(self.planner)

    def factory(self) -> Factory:
        """Migrate the database, and compose the factory for the coordinator itself.

        Raises:
            ServiceUnavailableError: A server doesn't answer.
        """
        migrate(self.settings.database)
        ledger.migrate(self.settings.database)
        if self.settings.unfenced:
            unfenced.mark(self.settings.database)
        self.faults.mkdir(parents=True, exist_ok=True)
        return compose(self.settings)


def new_folder(runs: Path) -> Path:
    """Make a folder for a run; its name is the run's id."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = runs.resolve() / f"{stamp}-{secrets.token_hex(2)}"
    folder.mkdir(parents=True)
    return folder


def visibility_timeout(lease_ttl: float) -> int:
    """Seconds after which the broker gives up on a killed worker's messages, in a scenario."""
    return max(round(2 * lease_ttl), SHORTEST_VISIBILITY)


@contextmanager
def opened(
    folder: Path,
    *,
    lease_ttl: float,
    servers: Servers,
    postgres: bool = False,
    guards: bool = True,
    planner: Mapping[str, str] | None = None,
) -> Iterator[Site]:
    """A site for the length of a `with` block, and the servers that it needs.

    Args:
        folder: From `new_folder`.
        lease_ttl: Seconds.
        servers: Those that are there already.
        postgres: Start a PostgreSQL where no database is given, in place of a SQLite file.
        guards: False to show what happens without them; only on servers of the site's own.
        planner: Environment of the workers' planner.

    Raises:
        ServerError: A package is missing, or a server did not start.
    """
    own = folder / "servers"
    with ExitStack() as stack:
        database, broker, redis = servers.database, servers.broker, servers.redis
        if broker is None:
            valkey = stack.enter_context(embedded_redis(own / "valkey"))
            broker, redis = valkey.url_of(0), redis or valkey.url_of(1)
        if database is None and postgres:
            database = stack.enter_context(embedded_postgres(own / "postgres")).url
        settings = CoordinatorSettings.model_validate(
            {
                "database_url": database or f"sqlite:///{folder / SQLITE_FILE}",
                "broker_url": broker,
                "redis_url": redis,
                "lease_ttl": lease_ttl,
                "visibility_timeout": visibility_timeout(lease_ttl),
                "unfenced": not guards and servers == Servers(),
            }
        )
        yield Site(folder, settings, servers, planner or {})
