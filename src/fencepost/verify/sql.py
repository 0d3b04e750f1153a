"""Reading the facts from PostgreSQL or SQLite: read-only, one consistent snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import event, exc

from fencepost.errors import (
    ConfigurationError,
    ExecutionNotFoundError,
    SchemaError,
    ServiceUnavailableError,
)
from fencepost.verify.facts import (
    CheckpointFact,
    EffectFact,
    EventFact,
    ExecutionFact,
    SignalFact,
)
from fencepost.verify.tables import (
    CHECKPOINTS,
    DUE_AT,
    EFFECTS,
    EVENTS,
    EVERYTHING,
    EXECUTIONS,
    RESOLUTION,
    SENT,
    SIGNALS,
)

EXECUTION_TIMES = ("ended_at", "paused_at", "wake_at")

RUNS_AT_ONCE = 200
"""Runs whose facts are held in memory together."""


class Database:
    """The stored executions, chains and audit events.

    Args:
        url: SQLAlchemy URL of PostgreSQL or SQLite. Nothing is ever written to it.

    Attributes:
        address: The URL without its password.

    Raises:
        ConfigurationError: The URL can't be read or names another kind of database.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.make_url(url)
        except exc.ArgumentError:
            raise ConfigurationError(
                "the database URL can't be read; it should look like"
                " postgresql+psycopg://user:password@host/db or sqlite:///file.db"
            ) from None
        self.address = parsed.render_as_string(hide_password=True)
        match parsed.get_backend_name():
            case "postgresql" | "postgres":
                self._engine = _postgresql(parsed)
            case "sqlite":
                self._engine = _sqlite(parsed)
            case other:
                raise ConfigurationError(
                    f"{other} is not supported: use postgresql+psycopg:// or sqlite:///"
                )

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open a read-only transaction that sees one moment.

        Raises:
            SchemaError: The engine's tables aren't there, or lack a column.
            ServiceUnavailableError: The database doesn't answer.
        """
        try:
            with self._engine.connect() as connection:
                yield Snapshot(connection)
        except (exc.OperationalError, exc.ProgrammingError, exc.InterfaceError) as problem:
            raise self._translated(problem) from problem

    def _translated(self, problem: exc.DBAPIError) -> Exception:
        line = str(problem.orig).strip().partition("\n")[0]
        undefined = isinstance(problem, exc.ProgrammingError) and "does not exist" in line
        if undefined or "no such table" in line or "no such column" in line:
            return SchemaError(
                f"the database {self.address} doesn't have this version's tables ({line}):"
                " run `fencepost migrate`"
            )
        return ServiceUnavailableError(
            f"the database {self.address} can't be read: {line}",
            service="database",
            url=self.address,
        )

    def close(self) -> None:
        """Give the connections up."""
        self._engine.dispose()


class Snapshot:
    """One moment of the database.

    Args:
        connection: In a transaction of its own.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def root_of(self, execution_id: UUID) -> UUID:
        """The execution that was started, of the run that this one belongs to.

        Raises:
            ExecutionNotFoundError: There is no such execution.
        """
        query = sa.select(EXECUTIONS.c.root_id).where(EXECUTIONS.c.execution_id == execution_id)
        root: UUID | None = self._connection.execute(query).scalar()
        if root is None:
            raise ExecutionNotFoundError(execution_id)
        return root

    def batches(self) -> Iterator[list[UUID]]:
        """All roots, some at a time."""
        root, last = EXECUTIONS.c.root_id, None
        while True:
            query = sa.select(root).distinct().order_by(root).limit(RUNS_AT_ONCE)
            query = query if last is None else query.where(root > last)
            roots = list(self._connection.execute(query).scalars())
            if not roots:
                return
            last = roots[-1]
            yield roots

    def executions(self, roots: Sequence[UUID]) -> list[ExecutionFact]:
        """Every execution of these runs."""
        query = sa.select(*EXECUTIONS.c, DUE_AT.is_not(None).label("scheduled")).where(
            EXECUTIONS.c.root_id.in_(roots)
        )
        rows = self._connection.execute(query.order_by(EXECUTIONS.c.execution_id))
        return [_execution(row) for row in rows]

    def checkpoints(self, roots: Sequence[UUID]) -> Iterator[CheckpointFact]:
        """Their checkpoints, each chain in order."""
        of_runs = sa.select(EXECUTIONS.c.execution_id).where(EXECUTIONS.c.root_id.in_(roots))
        yield from self._chains(CHECKPOINTS.c.execution_id.in_(of_runs))

    def chains(self, execution_ids: Iterable[UUID]) -> Iterator[CheckpointFact]:
        """The chains of these executions, of whatever run."""
        yield from self._chains(CHECKPOINTS.c.execution_id.in_(list(execution_ids)))

    def _chains(self, which: sa.ColumnElement[bool]) -> Iterator[CheckpointFact]:
        table = CHECKPOINTS
        order = (table.c.execution_id, table.c.seq, table.c.checkpoint_id)
        query = sa.select(*table.c).where(which).order_by(*order)
        for row in self._connection.execute(query):
            yield CheckpointFact(**_plain(row) | {"created_at": _time(row.created_at)})

    def events(self, roots: Sequence[UUID]) -> Iterator[EventFact]:
        """Their audit events, in order."""
        table = EVENTS
        query = (
            sa.select(*table.c)
            .join_from(table, EXECUTIONS, table.c.execution_id == EXECUTIONS.c.execution_id)
            .where(EXECUTIONS.c.root_id.in_(roots))
            .order_by(table.c.event_id)
        )
        for row in self._connection.execute(query):
            details = row.details if isinstance(row.details, dict) else {}
            yield EventFact(**_plain(row) | {"at": _time(row.at), "details": details})

    def effects(self, roots: Sequence[UUID]) -> Iterator[EffectFact]:
        """Their effects."""
        table = EFFECTS
        query = (
            sa.select(*table.c, RESOLUTION.is_not(None).label("resolved"))
            .join_from(table, EXECUTIONS, table.c.execution_id == EXECUTIONS.c.execution_id)
            .where(EXECUTIONS.c.root_id.in_(roots))
            .order_by(table.c.sink, table.c.key)
        )
        for row in self._connection.execute(query):
            confirmed_at = None if row.confirmed_at is None else _time(row.confirmed_at)
            yield EffectFact(
                **_plain(row) | {"confirmed_at": confirmed_at, "resolved": bool(row.resolved)}
            )

    def signals(self, roots: Sequence[UUID]) -> Iterator[SignalFact]:
        """What was sent to them, oldest first."""
        table = SIGNALS
        query = (
            sa.select(*table.c)
            .join_from(table, EXECUTIONS, table.c.execution_id == EXECUTIONS.c.execution_id)
            .where(EXECUTIONS.c.root_id.in_(roots))
            .order_by(SENT)
        )
        for row in self._connection.execute(query):
            yield SignalFact(**_plain(row))

    def epochs(self, execution_ids: Iterable[UUID]) -> dict[UUID, int]:
        """The epochs of these executions."""
        query = sa.select(EXECUTIONS.c.execution_id, EXECUTIONS.c.epoch).where(
            EXECUTIONS.c.execution_id.in_(list(execution_ids))
        )
        return {row.execution_id: row.epoch for row in self._connection.execute(query)}

    def strays(self) -> list[UUID]:
        """Ids that checkpoints, events, effects or signals name, and that no execution has."""
        found: set[UUID] = set()
        for table in (CHECKPOINTS, EVENTS, EFFECTS, SIGNALS):
            known = sa.exists().where(EXECUTIONS.c.execution_id == table.c.execution_id)
            named = table.c.execution_id
            query = sa.select(named).distinct().where(~known, named != EVERYTHING)
            found.update(self._connection.execute(query).scalars())
        return sorted(found)


def _postgresql(url: sa.URL) -> sa.Engine:
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    try:
        engine = sa.create_engine(
            url,
            isolation_level="REPEATABLE READ",
            connect_args={"connect_timeout": 10, "application_name": "fencepost-verify"},
        )
    except ModuleNotFoundError:
        raise ConfigurationError(
            "the PostgreSQL driver is not installed: pip install 'fencepost[postgres]'"
        ) from None
    return engine.execution_options(postgresql_readonly=True)


def _sqlite(url: sa.URL) -> sa.Engine:
    if url.database in (None, "", ":memory:"):
        raise ConfigurationError("SQLite needs a file: a database in memory can't be verified")
    path = Path(str(url.database))

    def connect() -> sqlite3.Connection:
        # Opening for reading makes no file, neither of a mistyped name nor beside an idle one.
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10, isolation_level=None
        )
        connection.execute("PRAGMA query_only = ON")
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.NullPool)

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def _execution(row: Any) -> ExecutionFact:
    values = _plain(row)
    times = {
        name: None if values[name] is None else _time(values[name]) for name in EXECUTION_TIMES
    }
    return ExecutionFact(**values | times | {"scheduled": bool(row.scheduled)})


def _plain(row: Any) -> dict[str, Any]:
    return dict(row._mapping)  # noqa: SLF001 - the documented way to a row's names


def _time(value: Any) -> datetime:
    """SQLite keeps UTC as text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return datetime.fromisoformat(str(value)).replace(tzinfo=UTC)
