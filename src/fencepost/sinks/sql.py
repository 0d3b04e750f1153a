"""Fences and keys in an SQL database: the ledger's own, or any other on PostgreSQL or SQLite.

The mark's row stays locked until the transaction ends, so nobody can raise the mark between the
check and the commit. `sinks.tables` has the tables.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, timedelta
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from fencepost import serde
from fencepost.errors import ConfigurationError, FencepostError, PayloadError, StaleLeaseFenceError
from fencepost.fence import FenceToken
from fencepost.sinks.contract import (
    Applied,
    Refusal,
    SinkBusyError,
    SinkCall,
    check_names,
    check_same_request,
    stale,
)
from fencepost.sinks.tables import applied, create_tables, fences, metadata, refusals

__all__ = [
    "SinkSession",
    "SqlSink",
    "apply_once",
    "check_and_advance_fence",
    "create_tables",
    "metadata",
]

logger = logging.getLogger(__name__)

S = TypeVar("S", Session, sa.Connection)
R = TypeVar("R")

_NOW = sa.func.current_timestamp()


def check_and_advance_fence(
    session: Session | sa.Connection, token: FenceToken, resource: str
) -> None:
    """Refuse a stale token, or raise the mark to its epoch, as part of the caller's transaction.

    The mark's row is locked until that transaction ends: where this call stands among its
    statements doesn't matter. An `AsyncSession` calls it as
    `await session.run_sync(check_and_advance_fence, token, resource)`.

    Args:
        session: In a transaction on PostgreSQL or SQLite; not one that commits by itself.
        token: The writer's.
        resource: What the fence protects; 1 to 255 characters.

    Raises:
        StaleLeaseFenceError: The mark is higher. Roll back.
        ConfigurationError: The connection commits each statement by itself, or belongs to
            another database.
    """
    check_names(resource)
    raise_mark(session, token, resource)


def raise_mark(session: Session | sa.Connection, token: FenceToken, resource: str) -> None:
    """`check_and_advance_fence` without the check of the name."""
    connection = _connection(session)
    insert = insert_into(connection, fences).values(
        resource=resource,
        execution_id=token.execution_id,
        epoch=token.epoch,
        owner=token.owner,
        advanced_at=_NOW,
    )
    new = insert.excluded
    upsert = insert.on_conflict_do_update(
        index_elements=[fences.c.resource, fences.c.execution_id],
        set_={"epoch": new.epoch, "owner": new.owner, "advanced_at": _NOW},
        where=fences.c.epoch <= new.epoch,
    ).returning(fences.c.epoch)
    # PostgreSQL locks the row that stands in the way even where the condition then fails.
    raised = connection.execute(upsert).first()
    _insist_on_transaction(connection)
    if raised is None:
        current = connection.execute(sa.select(fences.c.epoch).where(*_mark(resource, token)))
        raise stale(resource, token, current.scalar_one())


def apply_once(
    session: S, call: SinkCall, write: Callable[[S], R], *, returns: Any = None
) -> Applied[R]:
    """Check the fence, and write if the key is new, as part of the caller's transaction.

    Args:
        session: In a transaction, like `check_and_advance_fence`'s. Commit it to let the write
            land.
        call: Which write this is.
        write: Given the session. Its result must be JSON-compatible, or of the type `returns`.
        returns: The result's type, for results that aren't plain JSON.

    Raises:
        StaleLeaseFenceError: The mark is higher. Roll back.
        EffectKeyConflictError: The key was applied for a request with another digest.
        PayloadError: The result can't be stored.
        Exception: What `write` raises; its writes and the key are undone then.
    """
    check_names(call.resource, call.key)
    raise_mark(session, call.token, call.resource)
    with session.begin_nested():
        return _apply(session, call, write, returns)


def _apply(session: S, call: SinkCall, write: Callable[[S], R], returns: Any) -> Applied[R]:
    connection = _connection(session)
    # Claimed before the write: of two executions under one key, the second waits here.
    claim = insert_into(connection, applied).values(
        resource=call.resource,
        key=call.key,
        execution_id=call.token.execution_id,
        epoch=call.token.epoch,
        owner=call.token.owner,
        digest=call.digest,
    )
    claimed = connection.execute(claim.on_conflict_do_nothing().returning(applied.c.key)).first()
    here = (applied.c.resource == call.resource, applied.c.key == call.key)
    if claimed is None:
        first = connection.execute(sa.select(applied).where(*here)).one()
        check_same_request(call, first.digest)
        return Applied(result=_load(first.result, returns), replayed=True, epoch=first.epoch)
    data = _dump(write(session), returns)
    connection.execute(sa.update(applied).where(*here).values(result=data))
    return Applied(result=_load(data, returns), replayed=False, epoch=call.token.epoch)


class SinkSession(Session):
    """A session whose transaction belongs to the sink: whoever is given it only writes."""

    def commit(self) -> None:
        """Refused: the write would land without its key."""
        raise FencepostError("the sink commits this session, together with the fence and the key")

    def rollback(self) -> None:
        """Refused: raise an exception instead."""
        raise FencepostError("raise an exception instead: the sink then rolls back")

    def land(self) -> None:
        """Commit."""
        super().commit()

    def abandon(self) -> None:
        """Roll back and give the connection up; harmless when that has been done."""
        try:
            super().rollback()
        except exc.DBAPIError:
            self.invalidate()
        finally:
            self.close()


class SqlSink:
    """Applies writes in transactions of its own. Implements `ApplyingSink`.

    Args:
        engine: Of the database that is written to, on PostgreSQL or SQLite, with the tables of
            `sinks.tables`.
        wait: How long PostgreSQL waits for a lock; SQLite waits as the engine is set up to.
        idle: After this long PostgreSQL ends the transaction of a client that does nothing, so
            that a frozen worker can't keep its successor from raising the mark.
    """

    def __init__(
        self,
        engine: sa.Engine,
        *,
        wait: timedelta = timedelta(seconds=5),
        idle: timedelta = timedelta(seconds=30),
    ) -> None:
        _insert_of(engine.dialect)
        self._postgresql = engine.dialect.name == "postgresql"
        if self._postgresql:
            # The engine's own default may be to commit each statement by itself.
            engine = engine.execution_options(isolation_level="READ COMMITTED")
        self._engine = engine
        self._timeouts = sa.select(
            sa.func.set_config("lock_timeout", _ms(wait), True),
            sa.func.set_config("idle_in_transaction_session_timeout", _ms(idle), True),
        )

    def advance(self, resource: str, token: FenceToken) -> None:
        """See `FencedSink.advance`.

        Raises:
            StaleLeaseFenceError: The mark is higher.
            SinkBusyError: A transaction that writes to the resource doesn't end.
        """
        check_names(resource)
        with self._on_record(resource, token), self.transaction() as session:
            raise_mark(session, token, resource)
            session.land()

    def apply(
        self, call: SinkCall, write: Callable[[Session], R], *, returns: Any = None
    ) -> Applied[R]:
        """Check the fence and the key, write, and commit.

        Args:
            call: Which write this is.
            write: Given a session. Its result must be JSON-compatible, or of the type `returns`.
            returns: The result's type, for results that aren't plain JSON.

        Raises:
            StaleLeaseFenceError: The mark is higher; it is on record.
            EffectKeyConflictError: The key was applied for a request with another digest.
            SinkBusyError: Another transaction doesn't let this one in.
            PayloadError: The result can't be stored.
            Exception: What `write` raises. In all these cases nothing was written.
        """
        check_names(call.resource, call.key)
        with (
            self._on_record(call.resource, call.token, call),
            self.transaction() as session,
        ):
            raise_mark(session, call.token, call.resource)
            receipt = _apply(session, call, write, returns)
            session.land()
            return receipt

    @contextmanager
    def transaction(self) -> Iterator[SinkSession]:
        """A transaction with the sink's time limits. It is rolled back unless it `land`s.

        Raises:
            SinkBusyError: A lock wasn't given in time.
        """
        session = SinkSession(self._engine, expire_on_commit=False)
        try:
            if self._postgresql:
                session.execute(self._timeouts)
            yield session
        except exc.OperationalError as problem:
            if not _is_busy(problem):
                raise
            raise SinkBusyError(
                f"the sink's database is busy: {problem.orig}", service="sink"
            ) from problem
        finally:
            session.abandon()

    @contextmanager
    def _on_record(
        self, resource: str, token: FenceToken, call: SinkCall | None = None
    ) -> Iterator[None]:
        try:
            yield
        except StaleLeaseFenceError as error:
            self.record(error, resource, token, call)
            raise

    def record(
        self, error: StaleLeaseFenceError, resource: str, token: FenceToken, call: SinkCall | None
    ) -> None:
        """Put a refusal on record, after its transaction was rolled back. Failures are logged."""
        owner = sa.select(fences.c.owner).where(*_mark(resource, token)).scalar_subquery()
        insert = sa.insert(refusals).values(
            resource=resource,
            execution_id=token.execution_id,
            held=error.held,
            current=error.current,
            owner=token.owner,
            current_owner=sa.func.coalesce(owner, ""),
            key=call.key if call is not None else None,
            digest=call.digest if call is not None else None,
        )
        try:
            with self.transaction() as session:
                session.execute(insert)
                session.land()
        except (exc.SQLAlchemyError, SinkBusyError):
            logger.exception("the refusal of a stale write could not be recorded: %s", error)

    def refusals(self, resource: str, *, limit: int = 100) -> list[Refusal]:
        """The newest stale writes that were refused, oldest of them first."""
        query = (
            sa.select(refusals)
            .where(refusals.c.resource == resource)
            .order_by(refusals.c.id.desc())
            .limit(limit)
        )
        with self.transaction() as session:
            rows = session.execute(query).all()
        return [_refusal(row) for row in reversed(rows)]

    def purge(self, older_than: timedelta) -> int:
        """Forget marks, keys and refusals that nobody has touched for this long.

        Whatever is still running must be younger: a worker that has been frozen for longer isn't
        refused any more, and a key that is sent again is applied again.

        Returns:
            How many rows were deleted.
        """
        with self.transaction() as session:
            now = session.execute(sa.select(_NOW)).scalar_one()
            deleted = 0
            for table in (fences, applied, refusals):
                (column,) = [c for c in table.columns if isinstance(c.type, sa.DateTime)]
                delete = sa.delete(table).where(column < now - older_than)
                result: Any = session.execute(delete)
                deleted += result.rowcount
            session.land()
        return deleted


def _connection(session: Session | sa.Connection) -> sa.Connection:
    return session.connection() if isinstance(session, Session) else session


def _insert_of(dialect: sa.Dialect) -> Any:
    match dialect.name:
        case "postgresql":
            return postgresql.insert
        case "sqlite":
            return sqlite.insert
        case other:
            raise ConfigurationError(
                f"fenced SQL sinks are for PostgreSQL and SQLite; {other} needs one of its own"
            )


def insert_into(connection: sa.Connection, table: sa.Table) -> Any:
    """An `INSERT` that can have `ON CONFLICT`.

    Raises:
        ConfigurationError: The database has none.
    """
    return _insert_of(connection.dialect)(table)


def _mark(resource: str, token: FenceToken) -> tuple[sa.ColumnElement[bool], ...]:
    return fences.c.resource == resource, fences.c.execution_id == token.execution_id


def _insist_on_transaction(connection: sa.Connection) -> None:
    driver = connection.connection.dbapi_connection
    if connection.dialect.name == "postgresql":
        alone = getattr(driver, "autocommit", False) is True
    else:
        alone = getattr(driver, "in_transaction", True) is False
    if alone:
        raise ConfigurationError(
            "this connection commits each statement by itself, so the fence would not hold until"
            " the write: use a transaction, for instance"
            " engine.execution_options(isolation_level='READ COMMITTED')"
        )


def _is_busy(problem: exc.OperationalError) -> bool:
    lock_not_available = getattr(problem.orig, "sqlstate", None) == "55P03"
    name = getattr(problem.orig, "sqlite_errorname", None) or ""
    return lock_not_available or name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _ms(span: timedelta) -> str:
    return str(max(1, span // timedelta(milliseconds=1)))


def _dump(result: Any, returns: Any) -> Any:
    if returns is not None:
        return serde.dump(result, returns, what="result of the write")
    try:
        return json.loads(json.dumps(result, allow_nan=False))
    except (TypeError, ValueError) as problem:
        raise PayloadError(
            f"the write's result can't be stored as JSON ({problem}): return plain data, or name"
            " its type with returns="
        ) from problem


def _load(data: Any, returns: Any) -> Any:
    return data if returns is None else serde.load(data, returns, what="result of the write")


def _refusal(row: Any) -> Refusal:
    at = row.refused_at
    return Refusal(
        resource=row.resource,
        execution_id=str(row.execution_id),
        held=row.held,
        current=row.current,
        owner=row.owner,
        current_owner=row.current_owner,
        key=row.key,
        digest=row.digest,
        at=at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC),
    )
