"""The migrations make the schema that the statements are written for, and can be taken back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from fencepost.stores.sql import create_engine, migrate
from fencepost.stores.sql.migrate import VERSION_TABLE, _config
from fencepost.stores.sql.schema import metadata


@pytest.fixture(params=["postgres_url", "sqlite_url"])
def engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """An empty database."""
    engine = create_engine(request.getfixturevalue(request.param))
    yield engine
    engine.dispose()


def differences(engine: sa.Engine) -> list[object]:
    with engine.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        found: list[object] = compare_metadata(context, metadata)
        return found


def move(engine: sa.Engine, revision: str) -> None:
    transactional = engine
    if engine.dialect.name == "postgresql":
        transactional = engine.execution_options(isolation_level="READ COMMITTED")
    with transactional.begin() as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.downgrade(config, revision)


def shape(engine: sa.Engine) -> dict[str, tuple[list[str], ...]]:
    inspector = sa.inspect(engine)
    return {
        name: (
            sorted(str(column["name"]) for column in inspector.get_columns(name)),
            sorted(str(index["name"]) for index in inspector.get_indexes(name)),
            sorted(str(unique["name"]) for unique in inspector.get_unique_constraints(name)),
        )
        for name in inspector.get_table_names()
    }


def test_a_migrated_database_is_what_the_statements_expect(engine):
    migrate(engine)
    assert differences(engine) == []


def test_the_last_migration_can_be_taken_back_and_done_again(engine):
    migrate(engine)
    newest = shape(engine)
    move(engine, "0002")
    older = shape(engine)
    assert "fencepost_signals" not in older
    assert "paused_at" not in older["fencepost_executions"][0]
    migrate(engine)
    assert shape(engine) == newest
    assert differences(engine) == []


def test_executions_of_the_older_schema_are_kept(engine):
    migrate(engine)
    move(engine, "0002")
    columns = (
        "execution_id, saga, version, input_digest, lineage_id, root_id, status, phase, epoch,"
        " head, head_seq, recoveries, attempt, dispatches, created_at"
    )
    key = "'00000000-0000-0000-0000-000000000001'"
    if engine.dialect.name == "sqlite":
        key = "'00000000000000000000000000000001'"
    values = (
        f"{key}, 'old', 'v1', 'd', {key}, {key}, 'active', 'forward', 3, {key}, 2, 0, 0, 0,"
        " '2026-01-01 00:00:00.000'"
    )
    with engine.begin() as connection:
        connection.execute(
            sa.text(f"INSERT INTO fencepost_executions ({columns}) VALUES ({values})")
        )
    migrate(engine)
    with engine.connect() as connection:
        query = sa.text("SELECT saga, epoch, priority, paused_at FROM fencepost_executions")
        assert connection.execute(query).all() == [("old", 3, 5, None)]
