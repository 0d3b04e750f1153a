"""A fleet for each module's sagas, on either database, whose facts the verifier judges."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import MakeScene
from tests.support.queues import redelivered_after
from tests.support.scene import Scene

WORKERS = 3

# What a killed worker had taken comes back while the verifier still looks; also if it was killed
# when it held the lock under which messages are given back.
QUICK_REDELIVERY = redelivered_after(2, unacked_mutex_expire=1)


@pytest.fixture(scope="module", params=["postgres", "sqlite"])
def fleet_of_three(request: pytest.FixtureRequest, make_scene: MakeScene) -> Iterator[Scene]:
    """The scene of a module that names its sagas in `SAGAS`."""
    how = {"lease_ttl": 1.5, "conf": QUICK_REDELIVERY, "settings": {"start_grace": 4.0}}
    sagas = request.module.SAGAS.__name__
    with make_scene(request.param, workers=WORKERS, sagas=sagas, **how) as scene:
        yield scene


@pytest.fixture
def scene(fleet_of_three: Scene) -> Iterator[Scene]:
    """Enough workers, no fault armed, no gate shut; what a test leaves is judged."""
    scene = fleet_of_three
    scene.refill(WORKERS, ready=WORKERS - 1)
    yield scene
    scene.gates.open()
    scene.refill(WORKERS, ready=0)
    scene.assert_verified(settle=20)
