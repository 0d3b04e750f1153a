"""Worlds for effects, and the matrix, which is run once for each database."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from fencepost import EffectKind
from fencepost.testing import PostgresServer, RedisServer, embedded_redis
from tests.acceptance.effects import matrix
from tests.acceptance.effects.cells import SURVIVORS, Cell, Loss, Point, Result, run_wave
from tests.acceptance.effects.world import World

MakeWorld = Callable[..., AbstractContextManager[World]]

_numbers = itertools.count(1)
_matrix: dict[str, dict[Cell, Result]] = {}
_seconds: dict[str, float] = {}


@pytest.fixture(scope="session")
def effects_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Valkey that nobody else flushes."""
    with embedded_redis(tmp_path_factory.mktemp("effects-redis")) as server:
        yield server


@pytest.fixture(scope="session")
def make_world(
    effects_redis: RedisServer,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> MakeWorld:
    """Makes worlds: `make_world("postgres")`."""

    @contextmanager
    def make(kind: str, *, lease_ttl: float = 1.5, pool: str = "prefork") -> Iterator[World]:
        number = next(_numbers)
        folder = tmp_path_factory.mktemp(f"effects-{kind}")
        url = f"sqlite:///{folder / 'fencepost.sqlite3'}"
        if kind == "postgres":
            postgres_server.start()
            url = postgres_server.create_database(f"effects_{number}")
        redis_url = effects_redis.url_of(number % 16)
        world = World(folder, url, redis_url, lease_ttl=lease_ttl, pool=pool)
        try:
            yield world
        finally:
            world.close()
            if kind == "postgres":
                postgres_server.drop_database(f"effects_{number}")

    return make


@pytest.fixture(scope="session")
def results(make_world: MakeWorld) -> Callable[[str], dict[Cell, Result]]:
    """The matrix on a database: `results("postgres")`."""

    def run(database: str) -> dict[Cell, Result]:
        if database not in _matrix:
            started, found = time.monotonic(), _matrix.setdefault(database, {})
            with make_world(database) as world:
                # The frozen ones first: they leave everyone alive.
                for loss, point in itertools.product((Loss.FREEZE, Loss.KILL), Point):
                    for cells in _waves(world, point, loss):
                        found.update(run_wave(world, cells))
            _seconds[database] = time.monotonic() - started
        return _matrix[database]

    return run


def _waves(world: World, point: Point, loss: Loss) -> Iterator[list[Cell]]:
    cells = [Cell(kind, point, loss) for kind in EffectKind]
    alone = [cell for cell in cells if cell.holds_all_of(world.database)]
    yield [cell for cell in cells if cell not in alone]
    for cell in alone:
        yield [cell]


@pytest.fixture(scope="module", params=["postgres", "sqlite"])
def world(request: pytest.FixtureRequest, make_world: MakeWorld) -> Iterator[World]:
    """A world with workers, on either database."""
    with make_world(request.param) as world:
        world.start_workers(1 + SURVIVORS)
        yield world


@pytest.fixture(autouse=True)
def _nobody_stays_frozen(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield
    if "world" in request.fixturenames:
        world: World = request.getfixturevalue("world")
        world.fleet.disarm()
        world.thaw_all()
        world.start_workers(1 + SURVIVORS)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the matrix."""
    if not _matrix:
        return
    took = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in _seconds.items())
    terminalreporter.section(f"effects in the sink, by its own ledger ({took})")
    for line in matrix.table(_matrix):
        terminalreporter.write_line(line)
    path = matrix.save(_matrix)
    if path is not None:
        terminalreporter.write_line(f"\nwritten to {path}")
