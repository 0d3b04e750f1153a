"""A fan-out of 1,000 children on two workers, through the loss of two."""

from __future__ import annotations

import time
from uuid import UUID

import pytest

from fencepost.records import EventName
from tests.acceptance.fleet.conftest import VerifiedScene
from tests.acceptance.fleet.spans import most_at_once, owned
from tests.support.apps import crowd
from tests.support.fleet import Fault
from tests.support.scene import Scene

CHILDREN = 1_000
SECONDS = 150.0

# More slots than places: it is the cap that holds the children back.
CONCURRENCY = 11


@pytest.mark.parametrize(("kind", "pool"), [("postgres", "threads"), ("sqlite", "prefork")])
def test_the_cap_holds_through_two_kills_and_the_join_comes_once(
    verified_scene: VerifiedScene, kind: str, pool: str
) -> None:
    with verified_scene(kind, crowd.__name__) as scene:
        scene.fleet.ready(2, pool=pool, concurrency=CONCURRENCY)
        scene.gates.shut("attend")
        began = time.monotonic()
        handle = scene.start(crowd.crowd, count=CHILDREN)
        _fill_all_places(scene, handle.execution_id)
        # From here on nothing but the fleet's work and the two kills takes time.
        faults = [
            scene.fleet.arm("attend.inside", "kill", index=str(CHILDREN * part // 10))
            for part in (3, 6)
        ]
        opened = time.monotonic()
        scene.gates.open("attend")
        _replace_the_killed(scene, faults, pool)
        assert scene.succeeds(handle, SECONDS) == list(range(CHILDREN))
        ended = time.monotonic()
        print(
            f"\n{kind}, two workers of {CONCURRENCY} {pool}: {CHILDREN} children in"
            f" {ended - began:.1f} s, {ended - opened:.1f} s of it after all places were taken"
        )
        _assert_once_and_within_the_cap(scene, handle.execution_id)


def _fill_all_places(scene: Scene, parent_id: UUID) -> None:
    """Hold the first ones up until every other child's message has been in vain."""
    fleet = scene.fleet
    fleet.wait_for(lambda: len(_ran(scene, parent_id)) >= crowd.CAP, SECONDS, "places taken")
    fleet.wait_for(lambda: scene.in_queues() == 0, SECONDS, "all messages taken")
    assert len(_ran(scene, parent_id)) == crowd.CAP


def _replace_the_killed(scene: Scene, faults: list[Fault], pool: str) -> None:
    for number, fault in enumerate(faults, 1):
        victim = fault.victim(SECONDS)
        scene.fleet.start(pool=pool, concurrency=CONCURRENCY)
        victim.wait()
        assert len(scene.fleet.alive) == 2, f"after kill {number}"


def _ran(scene: Scene, parent_id: UUID) -> list[tuple[str, str, int]]:
    return scene.noted([child.execution_id for child in scene.children(parent_id)])


def _assert_once_and_within_the_cap(scene: Scene, parent_id: UUID) -> None:
    children = scene.children(parent_id)
    assert len(children) == CHILDREN
    recovered = [scene.events(c.execution_id, EventName.RECOVERED) for c in children]
    lost = sum(map(len, recovered))
    print(f"{lost} children were taken over")
    assert lost >= 2
    assert most_at_once(owned(scene, child) for child in children) == crowd.CAP
    kinds = [entry.kind for entry in scene.chain(parent_id)]
    assert kinds == ["start", "fan-out", "join", "step"]
    assert scene.runs(parent_id, "count") == 1
    # A body ran again only where its first worker was killed.
    assert len(_ran(scene, parent_id)) <= CHILDREN + lost
