"""The stores that commands work with, opened with clear errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import typer

from fencepost.engine.operations import Operations
from fencepost.engine.refusals import said
from fencepost.errors import ConfigurationError, ExecutionNotFoundError, SchemaError
from fencepost.records import Execution
from fencepost.stores.sql import SqlEffectStore, SqlExecutionStore, check_schema, create_engine

if TYPE_CHECKING:
    from fencepost.celery import Fencepost


def needed(database_url: str | None) -> str:
    """The database's URL.

    Raises:
        ConfigurationError: None was given.
    """
    if not database_url:
        raise ConfigurationError(
            "no database: give --database-url, or set FENCEPOST_DATABASE_URL",
            next="export FENCEPOST_DATABASE_URL=postgresql://user:password@host/db",
        )
    return database_url


@contextmanager
def opened(database_url: str | None) -> Iterator[SqlExecutionStore]:
    """The execution store on a database whose schema is this version's.

    Raises:
        ConfigurationError: No URL, or one that can't be read.
        SchemaError: The schema is another one, or there is none.
        ServiceUnavailableError: The database doesn't answer.
    """
    engine = create_engine(needed(database_url), pool_size=1)
    try:
        _refuse_to_make_a_file(engine.url.get_backend_name(), engine.url.database)
        check_schema(engine)
        # Nothing that is made here is announced by a message, so nobody waits for one.
        yield SqlExecutionStore(engine, start_grace=timedelta(0))
    finally:
        engine.dispose()


def _refuse_to_make_a_file(backend: str, path: str | None) -> None:
    """Connecting to SQLite makes a file; a mistyped name would look like an empty database."""
    if backend == "sqlite" and path and not Path(path).exists():
        raise SchemaError(f"there is no database file {path}: run `fencepost migrate` to make it")


def found(store: SqlExecutionStore, execution_id: str) -> Execution:
    """An execution by its id.

    Raises:
        ExecutionNotFoundError: That is no id, or there is no such execution.
    """
    try:
        execution = store.get(UUID(execution_id))
    except ValueError:
        raise ExecutionNotFoundError(execution_id) from None
    if execution is None:
        raise ExecutionNotFoundError(execution_id)
    return execution


def operations(store: SqlExecutionStore, application: str | None = None) -> Operations:
    """The operations on single executions, which hold values to the types of an app's sagas.

    Raises:
        AppNotFoundError, ConfigurationError: The name leads to no app, or none that is installed.
    """
    effects = SqlEffectStore(store)
    if application is None:
        return Operations(store, effects)
    from fencepost.cli.targets import load

    return Operations(store, effects, load(application).registry.find)


def database_of(fencepost: Fencepost) -> str:
    """The URL of the database that an app's workers use."""
    return fencepost.settings.database_url.get_secret_value()


def login() -> str:
    """The login name of whoever types the command."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):
        raise typer.BadParameter("nobody is logged in: say who", param_hint="--by") from None


def who(by: str | None, why: str) -> str:
    """Who decides, checked together with the reason before anything is opened.

    Raises:
        PayloadError: One of the two is empty.
    """
    name = login() if by is None else by
    said(name, why)
    return name
