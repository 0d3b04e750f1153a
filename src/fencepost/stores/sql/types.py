"""Column types and SQL functions that differ between PostgreSQL and SQLite."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC time; ISO text of fixed width on SQLite, so that it sorts."""

    impl = sa.String(32)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> Any:
        """TIMESTAMPTZ on PostgreSQL, text on SQLite."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        return dialect.type_descriptor(sa.String(32))

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        """An aware datetime for the driver."""
        if value is None or dialect.name == "postgresql":
            return value
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

    def process_result_value(  # both are the base class's arguments
        self,
        value: Any,
        dialect: sa.Dialect,  # noqa: ARG002
    ) -> datetime | None:
        """An aware datetime from the driver."""
        if value is None or isinstance(value, datetime):
            return value if value is None else value.astimezone(UTC)
        return datetime.fromisoformat(value).replace(tzinfo=UTC)


class after(FunctionElement[datetime]):  # noqa: N801 - it reads as an SQL function
    """The database server's time plus a number of seconds: `after(sa.literal(5.0))`."""

    type = UtcDateTime()
    inherit_cache = True
    name = "after"


@compiles(after, "postgresql")
def _after_postgresql(element: after, compiler: SQLCompiler, **kw: Any) -> str:
    seconds = compiler.process(element.clauses, **kw)
    return f"(clock_timestamp() + make_interval(secs => {seconds}))"


@compiles(after, "sqlite")
def _after_sqlite(element: after, compiler: SQLCompiler, **kw: Any) -> str:
    seconds = compiler.process(element.clauses, **kw)
    return f"strftime('%Y-%m-%d %H:%M:%f', 'now', ({seconds}) || ' seconds')"


class seconds_since(FunctionElement[float]):  # noqa: N801 - it reads as an SQL function
    """Seconds between a column's time and the database server's: `seconds_since(column)`."""

    type = sa.Float()
    inherit_cache = True
    name = "seconds_since"


@compiles(seconds_since, "postgresql")
def _since_postgresql(element: seconds_since, compiler: SQLCompiler, **kw: Any) -> str:
    moment = compiler.process(element.clauses, **kw)
    return f"extract(epoch FROM clock_timestamp() - {moment})"


@compiles(seconds_since, "sqlite")
def _since_sqlite(element: seconds_since, compiler: SQLCompiler, **kw: Any) -> str:
    moment = compiler.process(element.clauses, **kw)
    return f"((julianday('now') - julianday({moment})) * 86400.0)"


class begun(FunctionElement[datetime]):  # noqa: N801 - it reads as an SQL function
    """The database server's time when the statement began: `column <= begun()`.

    Within a statement it doesn't change, so that PostgreSQL can search an index by it.
    """

    type = UtcDateTime()
    inherit_cache = True
    name = "begun"


@compiles(begun, "postgresql")
def _begun_postgresql(_element: begun, _compiler: SQLCompiler, **_: Any) -> str:
    return "statement_timestamp()"


@compiles(begun, "sqlite")
def _begun_sqlite(_element: begun, _compiler: SQLCompiler, **_: Any) -> str:
    return "strftime('%Y-%m-%d %H:%M:%f', 'now')"


def now() -> after:
    """The database server's time."""
    return after(sa.literal_column("0.0", sa.Float))
