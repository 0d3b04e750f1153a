"""Redis answers, and not with what was asked for: read-only after a failover, full, or cut off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from fencepost.testing import RedisServer, embedded_redis
from tests.acceptance.conftest import MakeScene
from tests.support.apps import patient
from tests.support.scene import Scene
from tests.support.waiting import wait_for
from tests.support.workload import Workload

Illness = Callable[[RedisServer], AbstractContextManager[None]]

REFUSALS = 5
"""Commands that it must have refused before it is well again."""


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """One that may fall ill."""
    with embedded_redis(tmp_path / "redis") as server:
        yield server


def refused(server: RedisServer, error: str) -> int:
    """How often a server has answered with an error."""
    found = re.search(rf"errorstat_{error}:count=(\d+)", server.command("INFO", "errorstats"))
    return int(found[1]) if found else 0


def await_refusals(server: RedisServer, error: str) -> None:
    before = refused(server, error)
    wait_for(lambda: refused(server, error) >= before + REFUSALS, 30, f"{error} to be answered")


@contextmanager
def read_only(server: RedisServer) -> Iterator[None]:
    """What a primary is after a failover that it hasn't noticed: a replica."""
    server.command("REPLICAOF", "127.0.0.1", "1")
    await_refusals(server, "READONLY")
    yield
    server.command("REPLICAOF", "NO", "ONE")


@contextmanager
def out_of_memory(server: RedisServer) -> Iterator[None]:
    server.command("CONFIG", "SET", "maxmemory", "1")
    await_refusals(server, "OOM")
    yield
    server.command("CONFIG", "SET", "maxmemory", "0")


@contextmanager
def without_clients(server: RedisServer) -> Iterator[None]:
    """Every connection is closed, five times over."""
    for _ in range(REFUSALS):
        server.command("CLIENT", "KILL", "TYPE", "normal")
        server.command("CLIENT", "KILL", "TYPE", "pubsub")
    yield


@pytest.mark.parametrize("illness", [read_only, out_of_memory, without_clients])
def test_every_execution_still_ends_once(
    make_scene: MakeScene, own_redis: RedisServer, illness: Illness
) -> None:
    with make_scene("postgres", redis=own_redis, **patient.SCENE) as scene:
        workers = scene.fleet.ready(2, concurrency=2)
        work = Workload(scene)
        work.await_midst()
        with illness(own_redis):
            # A checkpoint needs no Redis: what is in hand may go on, and nobody gives up.
            assert all(worker.running for worker in workers), scene.fleet.logs()
        work.await_end()
        assert_nobody_left(scene)
        scene.assert_verified(settle=30)


def assert_nobody_left(scene: Scene) -> None:
    assert all(worker.running for worker in scene.fleet.workers), scene.fleet.logs()
