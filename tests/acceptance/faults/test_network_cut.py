"""One worker is cut off from a server, by reset connections or by silence; the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from fencepost.records import EventName
from tests.acceptance.conftest import MakeScene
from tests.chaos.network import Network, State
from tests.support.apps import patient
from tests.support.fleet import Worker
from tests.support.scene import Scene

DATABASE, REDIS = "database", "redis"


@contextmanager
def one_behind_links(make: MakeScene, network: Network) -> Iterator[tuple[Scene, Worker]]:
    """A scene, and the one worker of it whose connections go through links."""
    with make("postgres", **patient.SCENE) as scene:
        url, broker = sa.make_url(scene.database_url), urlsplit(scene.redis_url)
        database = network.link(DATABASE, url.port or 5432)
        redis = network.link(REDIS, broker.port or 6379)
        (worker,) = scene.fleet.ready(
            1,
            FENCEPOST_DATABASE_URL=url.set(port=database.port).render_as_string(False),
            SAMPLE_BROKER=broker._replace(netloc=f"127.0.0.1:{redis.port}").geturl(),
        )
        yield scene, worker


@pytest.mark.parametrize("state", [State.CUT, State.SILENT])
@pytest.mark.parametrize("servers", [[DATABASE], [REDIS], [DATABASE, REDIS]], ids="-".join)
def test_the_others_continue_and_it_is_refused(
    make_scene: MakeScene, servers: list[str], state: State
) -> None:
    with Network() as network, one_behind_links(make_scene, network) as (scene, cut_off):
        fault = scene.fleet.arm("second.inside", "pause", label="cut off")
        handle = scene.start(patient.line, label="cut off")
        assert fault.victim() is cut_off
        execution_id = handle.execution_id
        scene.fleet.ready(1)
        for server in servers:
            network.set(server, state)
        if REDIS not in servers:
            # It renews its lease, and finds at its commit that it can't tell anyone.
            fault.go()
        assert scene.succeeds(handle, 60) == "cut off"
        (recovered,) = scene.events(execution_id, EventName.RECOVERED)
        assert scene.worker_of(recovered.details["from_owner"]) is cut_off
        chain = scene.chain(execution_id)

        network.heal()
        fault.go()
        # It is well again when it does what only it can do.
        again = scene.start(patient.line, label="again")
        assert scene.succeeds(again, 60) == "again"
        assert scene.chain(execution_id) == chain
        assert len(scene.noted(execution_id, "applied")) == 1
        scene.assert_one_line(execution_id)
        scene.assert_verified(settle=30)
