"""The stores that commands work with, opened with clear errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from fencepost.errors import ConfigurationError, ExecutionNotFoundError, SchemaError
from fencepost.records import Execution
from fencepost.stores.sql import SqlExecutionStore, check_schema, create_engine


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
        yield SqlExecutionStore(engine)
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
