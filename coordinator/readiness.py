"""What a worker of the factory needs beside the engine, looked at before it takes any work."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import ledger
from coordinator.settings import CoordinatorSettings
from fencepost.errors import FencepostError, SchemaError
from fencepost.stores.redis import RedisLeaseStore
from fencepost.stores.sql import check_schema, create_engine
from fencepost.stores.sql.engine import available
from ledger.settings import FactorySettings
from tasks.planner import PlannerSettings


def problems(database_url: str) -> list[str]:
    """Everything that would make this process fail at its first release; empty if nothing.

    Args:
        database_url: Of the ledger.
    """
    return [*_tables(database_url), *_folders(), *_planner()]


def check_servers(settings: CoordinatorSettings) -> None:
    """Make sure that everything answers, before anything is written.

    Raises:
        ServiceUnavailableError: A server doesn't; says which.
        SchemaError: The database lacks tables; says which command makes them.
    """
    check_tables(settings.database)
    _check_redis(settings)


def check_tables(database_url: str) -> None:
    """Compare the tables of the engine and of the ledger with what this version needs.

    Raises:
        ServiceUnavailableError: The database doesn't answer.
        SchemaError: They differ; names the one command for both.
    """
    engine = create_engine(database_url)
    try:
        check_schema(engine)
        ledger.check(database_url)
    except SchemaError as problem:
        said = problem.message.partition(": run ")[0]
        advice = "run `python -m coordinator migrate`"
        raise SchemaError(f"{said}: {advice}", **problem.fields) from problem
    finally:
        engine.dispose()


def check_connections(settings: CoordinatorSettings) -> None:
    """Make sure that database, broker and leases answer; the tables may still be missing.

    Raises:
        ServiceUnavailableError: A server doesn't; says which.
    """
    engine = create_engine(settings.database)
    try:
        with available(engine), engine.connect():
            pass
    finally:
        engine.dispose()
    _check_redis(settings)


def _check_redis(settings: CoordinatorSettings) -> None:
    for url in dict.fromkeys((settings.broker, settings.leases)):
        RedisLeaseStore.from_url(url).state([UUID(int=0)])


def _tables(url: str) -> Iterator[str]:
    try:
        check_tables(url)
    except FencepostError as problem:
        yield f"{problem} [{problem.code}]"


def _folders() -> Iterator[str]:
    settings = FactorySettings()
    folders = {
        "FACTORY_STAGING_DIR": settings.staging_dir,
        "FACTORY_PUBLISH_DIR": settings.publish_dir,
    }
    for variable, folder in folders.items():
        problem = _not_writable(folder.resolve())
        if problem is not None:
            yield (
                f"the folder {folder.resolve()} can't be written to ({problem}): set {variable}"
                " to one that all workers share [config.folder]"
            )


def _not_writable(folder: Path) -> str | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as problem:
        return problem.strerror or str(problem)


def _planner() -> Iterator[str]:
    try:
        PlannerSettings.from_environ(os.environ)
    except FencepostError as problem:
        yield f"the planner: {problem} [{problem.code}]"
