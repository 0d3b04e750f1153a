"""The installed plugin: its servers and databases, and what it costs those who don't use it."""

from __future__ import annotations

import pytest

pytest_plugins = ("pytester",)


def test_it_is_found_and_loads_nothing_until_it_is_asked(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import sys

        HEAVY = {"celery", "kombu", "redis", "sqlalchemy", "alembic", "psycopg", "pydantic"}
        HEAVY |= {"psutil", "greenlet", "fencepost.testing.fleet", "fencepost.testing.servers"}

        def test_nothing_is_loaded():
            assert "fencepost.testing.plugin" in sys.modules
            assert not HEAVY & set(sys.modules)
        """
    )
    ran = project.runpytest_subprocess()
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(["plugins:*fencepost-*"])


def test_a_test_has_an_empty_redis_even_if_the_last_one_killed_it(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import redis

        urls = set()

        def test_first(fencepost_redis, fencepost_redis_server):
            urls.add(fencepost_redis)
            redis.Redis.from_url(fencepost_redis).set("left", 1)
            assert fencepost_redis_server.running

        def test_second(fencepost_redis, fencepost_redis_server):
            urls.add(fencepost_redis)
            assert redis.Redis.from_url(fencepost_redis).keys() == []
            fencepost_redis_server.kill()

        def test_third(fencepost_redis):
            urls.add(fencepost_redis)
            assert redis.Redis.from_url(fencepost_redis).ping()
            assert len(urls) == 1
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=3)


DATABASE = """
    import sqlalchemy as sa
    import pytest

    kept = {}

    def tables(connection):
        return set(sa.inspect(connection).get_table_names())

    def engine_of(url):
        if url not in kept:
            kept[url] = sa.create_engine(url)
        assert len(kept) == 1, "the address has changed"
        return kept[url]

    def test_first(fencepost_database):
        with engine_of(fencepost_database).begin() as connection:
            assert "fencepost_executions" in tables(connection)
            connection.execute(sa.text("CREATE TABLE stock (pieces INTEGER)"))
            connection.execute(sa.text("INSERT INTO stock VALUES (1)"))

    def test_second(fencepost_database):
        assert fencepost_database.startswith("{scheme}")
        with engine_of(fencepost_database).begin() as connection:
            found = tables(connection)
            assert "fencepost_executions" in found
            assert "stock" not in found
"""


@pytest.mark.parametrize(
    ("arguments", "ini", "scheme"),
    [
        ((), "", "postgresql+psycopg://"),
        (("--fencepost-database", "sqlite"), "", "sqlite:///"),
        ((), "fencepost_database = sqlite", "sqlite:///"),
    ],
    ids=["default", "option", "ini"],
)
def test_a_test_has_a_clean_database(
    project: pytest.Pytester, arguments: tuple[str, ...], ini: str, scheme: str
) -> None:
    project.makeini(f"[pytest]\n{ini}")
    project.makepyfile(DATABASE.replace("{scheme}", scheme))
    project.runpytest_subprocess(*arguments).assert_outcomes(passed=2)


def test_a_database_that_is_none_is_named(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\nfencepost_database = oracle")
    project.makepyfile("def test_one(fencepost_database): pass")
    ran = project.runpytest_subprocess()
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["*fencepost_database is 'oracle'*"])


def test_a_transaction_that_a_test_leaves_open_blocks_nobody(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import sqlalchemy as sa

        left = []

        def test_first(fencepost_postgres):
            left.append(sa.create_engine(fencepost_postgres).connect())
            left[0].execute(sa.text("LOCK TABLE fencepost_executions"))

        def test_second(fencepost_postgres):
            with sa.create_engine(fencepost_postgres).connect() as connection:
                found = connection.execute(sa.text("SELECT count(*) FROM fencepost_executions"))
                assert found.scalar_one() == 0
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=2)


def test_the_environment_is_the_tests_own(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import os

        def test_first(fencepost_environment):
            assert fencepost_environment.items() <= os.environ.items()
            assert os.environ["FENCEPOST_DATABASE_URL"].startswith("sqlite")

        def test_second():
            assert "FENCEPOST_DATABASE_URL" not in os.environ
            assert "CELERY_BROKER_URL" not in os.environ
        """
    )
    project.runpytest_subprocess("--fencepost-database=sqlite").assert_outcomes(passed=2)
