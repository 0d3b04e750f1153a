"""The pytest plugin: servers, a clean database for each test, and a fleet of your app's workers.

Pytest loads it by itself where Fencepost is installed. It does nothing to tests that ask for none
of its fixtures, and imports no library until one of them is used.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import sysconfig
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from fencepost.testing.crash_points import CrashPoints
    from fencepost.testing.fleet import Fleet
    from fencepost.testing.servers import PostgresServer, RedisServer

KEPT = ".fencepost-kept"
LEASE_SECONDS = "3"
DATABASES = ("postgres", "sqlite")


class FleetMaker(Protocol):
    """What the fixture `fencepost_fleet` is."""

    def __call__(
        self,
        module: str,
        *,
        environment: Mapping[str, str] | None = None,
        services: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Fleet:
        """Make a fleet, without starting workers.

        Args:
            module: What stands behind `celery -A`.
            environment: Variables of the workers, beside those of `fencepost_environment`.
            services: More servers that a worker may be cut off from: their URLs, by a name.
            cwd: Where the workers run; by default pytest's root folder.
        """
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the command line, and of the configuration file."""
    group = parser.getgroup("fencepost")
    group.addoption(
        "--fencepost-keep",
        action="store_true",
        help=f"keep each test's worker logs, fault records and ledger in {KEPT}/",
    )
    group.addoption(
        "--fencepost-database",
        choices=DATABASES,
        help="what fencepost_database is (default: postgres)",
    )
    parser.addini("fencepost_database", "what fencepost_database is: postgres or sqlite")


# -- servers ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def fencepost_redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The session's Valkey, to be stopped, killed or restarted by a test."""
    from fencepost.testing.servers import embedded_redis

    with embedded_redis(tmp_path_factory.mktemp("fencepost-redis")) as server:
        yield server


@pytest.fixture
def fencepost_redis(fencepost_redis_server: RedisServer) -> str:
    """URL of an empty Redis (Valkey); a server that a test left dead is started again."""
    fencepost_redis_server.start()
    fencepost_redis_server.command("FLUSHALL")
    return fencepost_redis_server.url


@pytest.fixture(scope="session")
def fencepost_postgres_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PostgresServer]:
    """The session's PostgreSQL, to be stopped, killed or restarted by a test."""
    from fencepost.testing.servers import embedded_postgres

    folder = tmp_path_factory.mktemp("fencepost-postgres")
    # Nothing has to survive a crash of the machine.
    with embedded_postgres(folder, fsync=False, settings={"max_connections": "200"}) as server:
        yield server


@pytest.fixture
def fencepost_postgres(fencepost_postgres_server: PostgresServer) -> Iterator[str]:
    """SQLAlchemy URL of a PostgreSQL database with Fencepost's tables and nothing in them.

    The URL is the same for all tests of a session, because your modules read it when they are
    imported. What a test leaves, its own tables included, is dropped before the next one.
    """
    from fencepost.testing import databases

    fencepost_postgres_server.start()
    yield databases.clean_postgres(fencepost_postgres_server)
    databases.close_pools()


@pytest.fixture(scope="session")
def _fencepost_sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fencepost-sqlite") / "fencepost.sqlite3"


@pytest.fixture
def fencepost_sqlite(_fencepost_sqlite_file: Path) -> Iterator[str]:
    """The same for SQLite, which can't be cut off."""
    from fencepost.testing import databases

    yield databases.clean_sqlite(_fencepost_sqlite_file)
    databases.close_pools()


@pytest.fixture
def fencepost_folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Where the test's workers write their logs; kept with `--fencepost-keep`."""
    name = re.sub(r"[^\w.-]+", "-", request.node.nodeid).strip("-")[-120:]
    if not request.config.getoption("--fencepost-keep"):
        return tmp_path_factory.mktemp("fencepost-test")
    for number in itertools.count(1):
        folder = request.config.rootpath / KEPT / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError


@pytest.fixture
def fencepost_database(request: pytest.FixtureRequest, fencepost_folder: Path) -> Iterator[str]:
    """SQLAlchemy URL of the test's database: PostgreSQL, or what `--fencepost-database` says."""
    chosen = request.config.getoption("--fencepost-database")
    chosen = chosen or request.config.getini("fencepost_database") or DATABASES[0]
    if chosen not in DATABASES:
        raise pytest.UsageError(f"fencepost_database is {chosen!r}, not one of {DATABASES}")
    url: str = request.getfixturevalue(f"fencepost_{chosen}")
    yield url
    if request.config.getoption("--fencepost-keep"):
        from fencepost.testing.databases import copy_ledger

        copy_ledger(url, fencepost_folder / "ledger.sqlite3")


# -- workers ---------------------------------------------------------------------------------


@pytest.fixture
def fencepost_environment(
    fencepost_redis: str, fencepost_database: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Variables that lead an app to the test's servers; set in this process too, for the test.

    Celery prefers `CELERY_BROKER_URL` and `CELERY_RESULT_BACKEND` to what the app's code says.
    Override it to add yours; then set them in this process as well, if the test needs them there.
    """
    given = {
        "CELERY_BROKER_URL": fencepost_redis,
        "CELERY_RESULT_BACKEND": fencepost_redis,
        "FENCEPOST_REDIS_URL": fencepost_redis,
        "FENCEPOST_DATABASE_URL": fencepost_database,
        "FENCEPOST_LEASE_TTL": LEASE_SECONDS,
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return given


@pytest.fixture
def fencepost_faults(fencepost_folder: Path) -> CrashPoints:
    """The crash points of the test's workers: `fencepost_faults.arm("effect.applied", "kill")`."""
    from fencepost.testing.crash_points import CrashPoints

    return CrashPoints(fencepost_folder / "faults")


@pytest.fixture
def fencepost_services(fencepost_redis: str, fencepost_database: str) -> dict[str, str]:
    """URLs of the servers that a worker can be cut off from: `redis`, and `database` if it is one.

    Override it to add yours, such as a stand-in for your payment provider.
    """
    servers = {"redis": fencepost_redis}
    if not fencepost_database.startswith("sqlite"):
        servers["database"] = fencepost_database
    return servers


_fleets = pytest.StashKey[list["Fleet"]]()


@pytest.fixture
def fencepost_fleet(
    request: pytest.FixtureRequest,
    fencepost_environment: Mapping[str, str],
    fencepost_services: Mapping[str, str],
    fencepost_folder: Path,
    fencepost_faults: CrashPoints,
) -> Iterator[FleetMaker]:
    """Makes fleets of your app's workers: `fencepost_fleet("shop.tasks").ready(2)`.

    All end with the test. If it fails, its report has the end of their logs.
    """
    from fencepost.testing.fleet import Fleet

    fleets = request.node.stash.setdefault(_fleets, [])
    with ExitStack() as stack:

        def make(
            module: str,
            *,
            environment: Mapping[str, str] | None = None,
            services: Mapping[str, str] | None = None,
            cwd: Path | None = None,
        ) -> Fleet:
            fleet = Fleet(
                fencepost_folder / f"fleet-{len(fleets) + 1}",
                module,
                {"PYTHONPATH": _path(), **fencepost_environment, **(environment or {})},
                cwd=cwd or request.config.rootpath,
                services={**fencepost_services, **(services or {})},
                crash_points=fencepost_faults,
            )
            fleets.append(fleet)
            stack.callback(fleet.stop)
            return fleet

        yield make


def _path() -> str:
    """Where this process finds modules that aren't installed: the workers shall find them too."""
    installed = {str(Path(path)) for path in sysconfig.get_paths().values()}
    own = [entry for entry in sys.path if Path(entry).is_dir() and entry not in installed]
    return os.pathsep.join(dict.fromkeys(own))


# -- reports ---------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the workers' last words to the report of a failed test."""
    report = yield
    fleets = item.stash.get(_fleets, [])
    if report.failed and fleets:
        words = [fleet.logs() for fleet in fleets if fleet.workers]
        report.sections.append(("workers", "\n".join(words)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where things are kept."""
    config = terminalreporter.config
    kept = config.rootpath / KEPT
    if config.getoption("--fencepost-keep") and kept.is_dir():
        terminalreporter.write_line(
            f"fencepost: kept in {kept}; read a ledger.sqlite3 with"
            " fencepost status --database-url sqlite:///..."
        )
