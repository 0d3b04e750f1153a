"""What the tests of fleets share: their Celery settings, and how a scene ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import pytest

from tests.acceptance.conftest import MakeScene
from tests.support.queues import redelivered_after
from tests.support.scene import Scene

# What a killed worker had taken comes back while the verifier still looks.
QUICK_REDELIVERY = redelivered_after(5)


class VerifiedScene(Protocol):
    """Makes scenes of a module's sagas that end in the verifier."""

    def __call__(self, kind: str, sagas: str, **how: Any) -> AbstractContextManager[Scene]:
        """Make one on `postgres` or `sqlite`, without workers."""
        ...


@pytest.fixture(scope="session")
def verified_scene(make_scene: MakeScene) -> VerifiedScene:
    """A test that has come to its end leaves nothing behind that breaks an invariant."""

    @contextmanager
    def make(kind: str, sagas: str, **how: Any) -> Iterator[Scene]:
        with make_scene(kind, sagas=sagas, conf=QUICK_REDELIVERY, **how) as scene:
            yield scene
            scene.gates.open()
            scene.assert_verified()

    return make
