"""Everything that a demonstration needs: servers, tables, workers; and nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from rich.console import Console

from examples.support.broker import VISIBILITY_TIMEOUT
from examples.support.fleet import Fleet
from examples.support.waiting import wait_for
from fencepost import Fencepost, Status
from fencepost.stores.sql import migrate
from fencepost.testing import embedded_postgres, embedded_redis
from fencepost.verify import verify

LEASE_TTL = 2.0
SECONDS = 60.0
"""How long anything may take before a demonstration gives up."""


@dataclass(frozen=True)
class Stage:
    """What runs.

    Attributes:
        broker: URL of Celery's broker, and of the leases.
        database: URL of Fencepost's database.
        fleet: The workers.
    """

    broker: str
    database: str
    fleet: Fleet

    def told(self, console: Console) -> bool:
        """Check the invariants against what is stored, and print it; returns whether all hold."""
        report = verify(self.database, self.broker, self.broker, settle=timedelta(seconds=10))
        for violation in report.violations:
            console.print(f"  {violation}", style="red")
        console.print(
            f"Verifier: {sum(report.executions.values())} executions, "
            + ("no invariant broken." if report.ok else f"broken: {report.violated}.")
        )
        return report.ok


@contextmanager
def stage(
    app: str, folder: Path, environment: Mapping[str, str], *, workers: int, postgres: bool = False
) -> Iterator[Stage]:
    """Start everything; the app's module may be imported from then on.

    Args:
        app: The module behind `celery -A`.
        folder: For data and logs.
        environment: For the workers and for us.
        workers: How many.
        postgres: Instead of SQLite.
    """
    with ExitStack() as stack:
        server = stack.enter_context(embedded_redis(folder / "valkey"))
        database = f"sqlite:///{folder / 'fencepost.sqlite3'}"
        if postgres:
            sql = stack.enter_context(embedded_postgres(folder / "postgres"))
            database = sql.url
        migrate(database)
        os.environ.update(environment)
        os.environ.update(
            CELERY_BROKER_URL=server.url,
            FENCEPOST_DATABASE_URL=database,
            FENCEPOST_LEASE_TTL=str(LEASE_TTL),
            **{VISIBILITY_TIMEOUT: str(2 * LEASE_TTL)},
        )
        fleet = Fleet(app, {}, folder)
        stack.callback(fleet.stop)
        fleet.start(workers)
        fleet.wait_until_ready()
        yield Stage(server.url, database, fleet)


def until(fp: Fencepost, execution_id: UUID, *statuses: Status) -> Status:
    """Wait until an execution has come to one of these states."""

    def there() -> Status | None:
        execution = fp.engine.executions.get(execution_id)
        found = execution.status if execution is not None else None
        return found if found in statuses else None

    named = " or ".join(statuses)
    found = wait_for(there, SECONDS, f"{execution_id} to be {named}")
    assert found is not None  # waited for
    return found
