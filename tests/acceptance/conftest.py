"""Scenes for acceptance tests. Scenes are shared by tests, because starting Celery workers is what
costs time; each test starts executions of its own and leaves no fault behind."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.testing import PostgresServer, RedisServer, embedded_redis
from tests.support.scene import Scene

MakeScene = Callable[..., AbstractContextManager[Scene]]

_numbers = itertools.count(1)

# One dies in a test, two must do: then nobody waits for the third to start.
WORKERS = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("acceptance")


@pytest.fixture(scope="session")
def fleet_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Valkey of the acceptance tests' own: nobody else flushes it."""
    with embedded_redis(tmp_path_factory.mktemp("fleet-redis")) as server:
        yield server


@pytest.fixture(scope="session")
def make_scene(
    fleet_redis: RedisServer,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> MakeScene:
    """Makes scenes: `make_scene("postgres", workers=2, lease_ttl=1.5, ...)`."""

    @contextmanager
    def make(
        kind: str,
        *,
        workers: int = 0,
        redis: RedisServer | None = None,
        postgres: PostgresServer | None = None,
        **how: Any,
    ) -> Iterator[Scene]:
        number = next(_numbers)
        folder = tmp_path_factory.mktemp(f"scene-{kind}")
        url = f"sqlite:///{folder / 'fencepost.sqlite3'}"
        if kind == "postgres":
            postgres = postgres or postgres_server
            postgres.start()
            url = postgres.create_database(f"scene_{number}")
        redis = redis or fleet_redis
        scene = Scene(folder, url, redis.url_of(number % 16), **how)
        try:
            scene.redis.flushdb()
            scene.fleet.ready(workers)
            yield scene
        finally:
            scene.close()
            if postgres is not None:
                postgres.drop_database(f"scene_{number}")

    return make


@pytest.fixture(scope="session")
def _shared(make_scene: MakeScene) -> Iterator[Callable[[str], Scene]]:
    """The scenes of the modules that want nothing special; each is made when first asked for."""
    with ExitStack() as stack:
        yield functools.cache(lambda kind: stack.enter_context(make_scene(kind, workers=WORKERS)))


@pytest.fixture(scope="module")
def scene_options() -> dict[str, Any] | None:
    """Overridden by a module that wants scenes of its own: what `make_scene` is given."""
    return None


def _scene(
    kind: str, options: dict[str, Any] | None, make: MakeScene, shared: Callable[[str], Scene]
) -> Iterator[Scene]:
    if options is None:
        yield shared(kind)
        return
    with make(kind, **options) as scene:
        yield scene


@pytest.fixture(scope="module")
def _postgres(
    make_scene: MakeScene,
    _shared: Callable[[str], Scene],
    scene_options: dict[str, Any] | None,
) -> Iterator[Scene]:
    yield from _scene("postgres", scene_options, make_scene, _shared)


@pytest.fixture(scope="module")
def _sqlite(
    make_scene: MakeScene,
    _shared: Callable[[str], Scene],
    scene_options: dict[str, Any] | None,
) -> Iterator[Scene]:
    yield from _scene("sqlite", scene_options, make_scene, _shared)


def _refilled(scene: Scene, options: dict[str, Any] | None) -> Iterator[Scene]:
    workers = WORKERS if options is None else options["workers"]
    scene.refill(workers, ready=max(1, workers - 1))
    yield scene
    scene.refill(workers, ready=0)


@pytest.fixture
def postgres_scene(_postgres: Scene, scene_options: dict[str, Any] | None) -> Iterator[Scene]:
    """The module's scene on PostgreSQL: enough workers that take messages, no fault armed."""
    yield from _refilled(_postgres, scene_options)


@pytest.fixture
def sqlite_scene(_sqlite: Scene, scene_options: dict[str, Any] | None) -> Iterator[Scene]:
    """The same on SQLite."""
    yield from _refilled(_sqlite, scene_options)


@pytest.fixture(params=["postgres", "sqlite"])
def scene(request: pytest.FixtureRequest) -> Scene:
    """Both, one after the other."""
    found: Scene = request.getfixturevalue(f"{request.param}_scene")
    return found
