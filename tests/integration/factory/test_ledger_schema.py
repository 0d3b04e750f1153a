"""Migrations of the ledger, on both databases."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

import ledger
import ledger.planner_records
from fencepost.errors import ConfigurationError, SchemaError, ServiceUnavailableError
from fencepost.stores.sql import migrate as migrate_engine
from ledger import database, migrations
from ledger.models import ARTIFACT_GUARD, Base


def tables(url: str) -> set[str]:
    names = sa.inspect(database.engine_for(url)).get_table_names()
    return {name for name in names if name.startswith("ledger_")}


def test_the_migrations_make_what_the_models_say(database_url: str) -> None:
    ledger.migrate(database_url)
    engine = database.engine_for(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": migrations.VERSION_TABLE}
        )
        assert compare_metadata(context, Base.metadata) == []
    assert tables(database_url) == set(Base.metadata.tables) | {migrations.VERSION_TABLE}


def test_the_ledger_and_the_engine_share_a_database(database_url: str) -> None:
    ledger.migrate(database_url)
    migrate_engine(database_url)
    ledger.migrate(database_url)
    migrate_engine(database_url)
    ledger.check(database_url)


def test_an_unmigrated_database_is_refused_with_the_command(database_url: str) -> None:
    with pytest.raises(SchemaError, match="python -m ledger migrate"):
        ledger.check(database_url)
    ledger.migrate(database_url)
    ledger.check(database_url)


def test_workers_may_migrate_at_once(database_url: str) -> None:
    barrier = threading.Barrier(4)

    def one(_: int) -> None:
        barrier.wait(timeout=30)
        ledger.migrate(database_url)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(one, range(4)))
    ledger.check(database_url)


def test_the_migrations_can_be_taken_back(database_url: str) -> None:
    ledger.migrate(database_url)
    engine = database.engine_for(database_url)
    config = migrations._config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert tables(database_url) <= {migrations.VERSION_TABLE}
    ledger.migrate(database_url)
    ledger.check(database_url)


def test_the_guard_of_a_step_key_is_an_index_of_its_own(database_url: str) -> None:
    ledger.migrate(database_url)
    engine = database.engine_for(database_url)
    ARTIFACT_GUARD.drop(engine)
    names = {index["name"] for index in sa.inspect(engine).get_indexes("ledger_artifacts")}
    assert ARTIFACT_GUARD.name not in names


def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(ServiceUnavailableError) as caught:
        ledger.migrate("postgresql://someone:hidden-word@127.0.0.1:1/ledger")
    assert "127.0.0.1:1" in str(caught.value)
    assert "hidden-word" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "nonsense", "mysql+pymysql://host/name"])
def test_a_url_that_cannot_be_used_is_explained(url: str) -> None:
    with pytest.raises(ConfigurationError, match="FENCEPOST_DATABASE_URL"):
        ledger.check(url)
