"""Steps and children with a queue of their own, and workers that serve only some queues."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from fencepost import Status
from fencepost.records import CheckpointKind, EventName
from tests.acceptance.fleet.conftest import VerifiedScene
from tests.support.apps import placement
from tests.support.fleet import Worker
from tests.support.scene import Scene

PLAIN = ("-Q", "celery")
GPU = ("-Q", placement.GPU)


@pytest.fixture(params=["postgres", "sqlite"])
def scene(request: pytest.FixtureRequest, verified_scene: VerifiedScene) -> Iterator[Scene]:
    with verified_scene(request.param, placement.__name__) as scene:
        yield scene


def ran_by(scene: Scene, execution_id: UUID) -> dict[str, Worker]:
    """The worker that completed each step."""
    return {
        entry.step: scene.worker_of(entry.owner)
        for entry in scene.chain(execution_id)
        if entry.kind is CheckpointKind.STEP
    }


def test_steps_run_where_their_queue_is_served(scene: Scene) -> None:
    """One scene, because workers take long to start: a step nobody serves, a kill, children."""
    (plain,) = scene.fleet.ready(arguments=PLAIN)

    # A step whose queue nobody serves waits, and its worker serves others meanwhile.
    film = scene.start(placement.film, label="first")
    other = scene.start(placement.errand, label="other", index=7)
    assert scene.succeeds(other) == 7
    scene.fleet.wait_for(lambda: scene.row(film.execution_id).owner is None, 10, "a hand-back")
    row = scene.row(film.execution_id)
    assert (row.status, row.queue) == (Status.ACTIVE, placement.GPU)
    assert scene.runs(film.execution_id, "render") == 0

    # It goes on as soon as such a worker comes; the step after it is back on the default queue.
    (gpu,) = scene.fleet.ready(arguments=GPU)
    assert scene.succeeds(film) == "first"
    assert ran_by(scene, film.execution_id) == {"fetch": plain, "render": gpu, "publish": plain}
    assert [step for step, what, _ in scene.noted(film.execution_id) if what == "ran"] == [
        "fetch",
        "render",
        "publish",
    ]

    # Children are begun where their saga's queue is served.
    book = scene.start(placement.frames, label="book", count=4)
    assert scene.succeeds(book) == sum(range(4))
    for child in scene.children(book.execution_id):
        assert ran_by(scene, child.execution_id) == {"draw": gpu}
    assert ran_by(scene, book.execution_id) == {"fetch": plain, "bind": plain}

    # A worker is lost inside the step: the step is taken over there and nowhere else.
    fault = scene.fleet.arm("render.inside", "kill", label="lost")
    lost = scene.start(placement.film, label="lost")
    assert fault.victim() is gpu
    gpu.wait()
    (second,) = scene.fleet.ready(arguments=GPU)
    assert scene.succeeds(lost) == "lost"
    assert ran_by(scene, lost.execution_id) == {"fetch": plain, "render": second, "publish": plain}
    assert len(scene.events(lost.execution_id, EventName.RECOVERED)) == 1
    assert len(scene.noted(lost.execution_id, "applied")) == 1
    for handle in (film, book, lost):
        scene.assert_one_line(handle.execution_id)
