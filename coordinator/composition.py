"""Puts the factory together: Celery, Fencepost and the sagas, from settings."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from celery import Celery, signals

import fencepost
from coordinator import readiness, unfenced
from coordinator.settings import EX_CONFIG, CoordinatorSettings
from fencepost.celery import Fencepost
from saga.release import release


@dataclass(frozen=True)
class Factory:
    """The release factory of one process."""

    app: Celery
    fp: Fencepost
    settings: CoordinatorSettings

    def close(self) -> None:
        """Give the connections to the database up; SQLite then tidies its files."""
        self.fp.database.dispose()


def compose(settings: CoordinatorSettings) -> Factory:
    """Make the Celery app and put Fencepost on it. Connects to nothing yet.

    Args:
        settings: From `coordinator.settings.load`.

    Raises:
        ConfigurationError: A setting is out of range.
    """
    app = Celery("release-factory", broker=settings.broker, backend=settings.broker)
    # Their own defaults wait for ever; a worker that can't publish must rather say so.
    app.conf.redis_socket_timeout = 10
    app.conf.redis_socket_connect_timeout = 5
    # Before Fencepost's own checks: one report names everything, and one command to mend it.
    _check_workers(app, settings)
    fp = fencepost.install(
        app,
        sagas=[release],
        kind=unfenced.UnfencedFencepost if settings.unfenced else Fencepost,
        database_url=settings.database,
        redis_url=settings.leases,
        lease_ttl=settings.lease_ttl,
    )
    if settings.visibility_timeout is not None:
        app.conf.broker_transport_options = app.conf.broker_transport_options | {
            "visibility_timeout": settings.visibility_timeout,
            "unacked_restore_interval": 1,
        }
    return Factory(app, fp, settings)


def _check_workers(app: Celery, settings: CoordinatorSettings) -> None:
    def on_init(sender: Any = None, **_: Any) -> None:
        if getattr(sender, "app", None) is not app:
            return
        problems = readiness.problems(settings.database)
        if settings.unfenced and not problems:
            problems += unfenced.objections(settings.database)
        if problems:
            report = "\n".join(f"  {problem}" for problem in problems)
            print(f"The factory's worker can't start.\n{report}", file=sys.stderr, flush=True)
            raise SystemExit(EX_CONFIG)

    signals.worker_init.connect(on_init, weak=False)
