"""Which run somebody means, and where its facts are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from coordinator import settings as factory_settings
from coordinator.report import REPORT_FILE
from fencepost.errors import FencepostError
from ledger.settings import FactorySettings


class RunNotFoundError(FencepostError):
    """Neither an execution nor a run's folder. Fields: `run`."""

    code = "run.not-found"


@dataclass(frozen=True, slots=True)
class RunLocation:
    """Where a run's facts are.

    Attributes:
        run: The execution that was started, or any of its run.
        broker: None if there is none any more; so are the leases then.
        lease_ttl: Seconds.
    """

    run: UUID
    database: str
    broker: str | None
    leases: str | None
    staging: Path
    published: Path
    lease_ttl: float


def locate(run: str, runs: Path, environ: Mapping[str, str] | None = None) -> RunLocation:
    """Find a run's facts.

    Args:
        run: An execution's id; or the folder of a scenario's run, or its name.
        runs: Where those folders are.
        environ: In place of the process's own.

    Raises:
        RunNotFoundError: There is no such thing.
        SettingsMissingError: The facts aren't in a folder, and no servers are named.
    """
    given = os.environ if environ is None else environ
    for folder in (Path(run), runs / run):
        if (folder / REPORT_FILE).is_file():
            return _kept(folder.resolve(), given)
    try:
        execution_id = UUID(run)
    except ValueError:
        raise RunNotFoundError(
            f"{run!r} is neither an execution's id nor a run's folder: `python -m coordinator"
            " status` lists the releases of your database, and runs/ holds those of scenarios",
            run=run,
        ) from None
    settings = factory_settings.load(given)
    stores = FactorySettings()
    return RunLocation(
        run=execution_id,
        database=settings.database,
        broker=settings.broker,
        leases=settings.leases,
        staging=stores.staging_dir.resolve(),
        published=stores.publish_dir.resolve(),
        lease_ttl=settings.lease_ttl,
    )


def _kept(folder: Path, environ: Mapping[str, str]) -> RunLocation:
    """A run whose artifacts are in its folder, and its facts too if they were in SQLite."""
    report = json.loads((folder / REPORT_FILE).read_text())
    last = report["repeats"][-1] if "repeats" in report else report
    file, broker, leases = last["servers"]["database_file"], None, None
    if file is not None:
        database = f"sqlite:///{folder / file}"
    else:
        # On servers of somebody's own: they are still there, if anywhere.
        settings = factory_settings.load(environ)
        database, broker, leases = settings.database, settings.broker, settings.leases
    return RunLocation(
        run=UUID(last["execution_id"]),
        database=database,
        broker=broker,
        leases=leases,
        staging=folder / "artifacts" / "staging",
        published=folder / "artifacts" / "published",
        lease_ttl=last["lease_ttl"],
    )
