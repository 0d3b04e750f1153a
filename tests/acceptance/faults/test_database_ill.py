"""PostgreSQL goes away in mid-flight, cuts connections, loses answers, or has no room left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fencepost import Saga
from fencepost.records import EventName
from fencepost.testing import PostgresServer, embedded_postgres
from tests.acceptance.conftest import MakeScene
from tests.chaos.network import Network
from tests.support.apps import patient, sagas
from tests.support.scene import Scene
from tests.support.workload import Workload

GRACE = {"start_grace": 4.0}

FULL = """
CREATE SEQUENCE refused;
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('refused');
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON fencepost_checkpoints
    FOR EACH ROW EXECUTE FUNCTION no_room();
"""


def run(scene: Scene, statement: str) -> None:
    with scene.fp.database.connect() as connection:
        connection.exec_driver_sql(statement)
        connection.commit()


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[PostgresServer]:
    """One that may be killed. What it has confirmed must survive that."""
    with embedded_postgres(tmp_path / "postgres") as server:
        yield server


def test_postgresql_is_killed_and_restarted(
    make_scene: MakeScene, own_postgres: PostgresServer
) -> None:
    with make_scene("postgres", postgres=own_postgres, **patient.SCENE) as scene:
        scene.fleet.ready(2, concurrency=2)
        work = Workload(scene)
        work.await_midst()
        own_postgres.kill()
        own_postgres.start()
        work.await_end()
        assert all(worker.running for worker in scene.fleet.workers), scene.fleet.logs()
        scene.assert_verified(settle=30)


def test_every_connection_is_terminated(make_scene: MakeScene) -> None:
    with make_scene("postgres", **patient.SCENE) as scene:
        scene.fleet.ready(2, concurrency=2)
        work = Workload(scene)
        work.await_midst()
        for _ in range(5):
            run(
                scene,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
        work.await_end()
        scene.assert_verified(settle=30)


@pytest.mark.parametrize("saga", [sagas.line, sagas.booking, sagas.purchase], ids=lambda s: s.name)
def test_the_answer_of_each_commit_is_lost(make_scene: MakeScene, saga: Saga[Any, Any]) -> None:
    """It has landed, and the connection breaks before anyone is told."""
    with Network() as network, make_scene("postgres", lease_ttl=1.5, settings=GRACE) as scene:
        url = sa.make_url(scene.database_url)
        link = network.link("database", url.port or 5432)
        through = url.set(port=link.port).render_as_string(hide_password=False)
        scene.fleet.ready(2, FENCEPOST_DATABASE_URL=through)
        network.lose("database", 3)
        handle = scene.start(saga, label="answer")
        outcome = scene.wait(handle, 40)
        assert link.lost == 3
        execution_id = handle.execution_id
        assert outcome.status.ended
        scene.assert_one_line(execution_id)
        noted = [(step, what) for step, what, _ in scene.noted(execution_id)]
        for once in [("third", "applied"), ("ledgered", "booked"), ("charge", "booked")]:
            assert noted.count(once) <= 1
        assert not scene.events(execution_id, EventName.LEASE_LOST), scene.story(execution_id)
        scene.assert_verified(settle=30)


@contextmanager
def full_disk(scene: Scene) -> Iterator[None]:
    """PostgreSQL refuses each checkpoint as it does without room, until three were refused."""
    run(scene, FULL)

    def refused() -> bool:
        with scene.fp.database.connect() as connection:
            return bool(connection.scalar(sa.text("SELECT last_value >= 3 FROM refused")))

    scene.fleet.wait_for(refused, 30, "checkpoints to be refused")
    yield
    run(scene, "DROP TRIGGER full_disk ON fencepost_checkpoints")


def test_a_full_disk_of_postgresql(make_scene: MakeScene) -> None:
    with make_scene("postgres", **patient.SCENE) as scene:
        workers = scene.fleet.ready(2, concurrency=2)
        work = Workload(scene)
        work.await_midst()
        with full_disk(scene):
            assert all(worker.running for worker in workers), scene.fleet.logs()
        work.await_end()
        scene.assert_verified(settle=30)
