"""The execution store on real databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost.stores.sql import SqlExecutionStore
from fencepost.stores.sql.schema import executions
from fencepost.stores.sql.types import after
from tests.conformance.execution_store import ExecutionStoreConformance
from tests.conformance.waits import Passed


class SqlLedger:
    """A table of the caller's own, beside the engine's."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        metadata = sa.MetaData()
        self._effects = sa.Table("effects", metadata, sa.Column("name", sa.String, nullable=False))
        metadata.create_all(engine)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with Session(self._transactional()) as session:
            yield session

    def write(self, session: Session, name: str) -> None:
        session.execute(sa.insert(self._effects).values(name=name))

    def written(self) -> list[str]:
        with self._engine.connect() as connection:
            return sorted(connection.execute(sa.select(self._effects.c.name)).scalars())

    def _transactional(self) -> sa.Engine:
        if self._engine.dialect.name == "postgresql":
            return self._engine.execution_options(isolation_level="READ COMMITTED")
        return self._engine


def put_into_the_past(engine: sa.Engine) -> Passed:
    def passed(execution_id: UUID, column: str) -> None:
        past = after(sa.literal(-60.0))
        values = {column: past} if column == "deadline_at" else {column: past, "due_at": past}
        with engine.begin() as connection:
            connection.execute(
                sa.update(executions)
                .where(executions.c.execution_id == execution_id)
                .values(values)
            )

    return passed


class TestPostgresStore(ExecutionStoreConformance):
    @pytest.fixture
    def store(self, postgres_engine):
        return SqlExecutionStore(postgres_engine)

    @pytest.fixture
    def ledger(self, postgres_engine):
        return SqlLedger(postgres_engine)

    @pytest.fixture
    def passed(self, postgres_engine):
        return put_into_the_past(postgres_engine)


class TestSqliteStore(ExecutionStoreConformance):
    @pytest.fixture
    def store(self, sqlite_engine):
        return SqlExecutionStore(sqlite_engine)

    @pytest.fixture
    def ledger(self, sqlite_engine):
        return SqlLedger(sqlite_engine)

    @pytest.fixture
    def passed(self, sqlite_engine):
        return put_into_the_past(sqlite_engine)
