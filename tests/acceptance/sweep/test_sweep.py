"""Every crash point, killed, frozen and terminated, on real workers and either database.

A hundred points around the stores' operations, and those with a name of their own. Which of them
a worker comes to is found out first; the others must be listed here, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.engine import points
from fencepost.sinks.sql import create_tables
from tests.acceptance.conftest import MakeScene
from tests.acceptance.sweep.sweeping import NAMED, WORKERS, Sweep, check
from tests.support.apps import sweep
from tests.support.queues import redelivered_after
from tests.support.scene import Scene

TOGETHER = 8
"""Faults that are armed at once."""

ACTIONS = ("kill", "freeze", "term")


@pytest.fixture(scope="module", params=["postgres", "sqlite"])
def scene(request: pytest.FixtureRequest, make_scene: MakeScene) -> Iterator[Scene]:
    """Messages that were taken by the dead come again soon; nothing is poison."""
    how = {
        "sagas": sweep.__name__,
        "lease_ttl": 1.2,
        "settings": {"start_grace": 2.0, "max_recoveries": 60},
        "conf": redelivered_after(5, unacked_mutex_expire=1),
    }
    with make_scene(request.param, **how) as scene:
        create_tables(scene.fp.database)
        scene.fleet.ready(WORKERS, concurrency=2)
        yield scene


STARTERS = ("executions.create", "executions.send_signal")
PEOPLE = (
    *("executions.pause", "executions.resume", "executions.reopen", "executions.unpark"),
    *("executions.lineage", "executions.events", "limits.usage"),
    *("effects.in_doubt", "effects.resolve", "effects.find"),
)
ELSEWHERE = {
    **dict.fromkeys(STARTERS, "called by who starts or signals; one transaction"),
    **dict.fromkeys(PEOPLE, "called for a person; one transaction, or only read"),
    "executions.chain": "only read, where an effect is shared with another execution",
    "executions.record": "only where a worker lacks a version, or a sink refuses: fleet, effects",
    "executions.wait_on": "only for a message that wakes for nothing: chords",
    "effects.announce": "only for a key that is sent again within a step: effects",
    "effects.reopen": "only for a refused effect that is tried again: effects",
}
"""Why a worker doesn't come to them here, and who does."""


@pytest.mark.timeout(1500)
def test_every_point(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    sweeping = Sweep(scene)
    reached = sweeping.reached()
    not_reached = {name.rsplit(".", 1)[0] for name in {*NAMED, *points.names()} - reached}
    assert not_reached <= ELSEWHERE.keys(), sorted(not_reached - ELSEWHERE.keys())

    swept = sorted(name for name in reached if name.rsplit(".", 1)[0] not in ELSEWHERE)
    for action in ACTIONS:
        for first in range(0, len(swept), TOGETHER):
            sweeping.batch(swept[first : first + TOGETHER], action)
    check(sweeping)
    scene.assert_verified(settle=30)
    with capsys.disabled():
        print(
            f"\n{scene.fp.database.dialect.name}: {len(swept)} points x {len(ACTIONS)} faults:"
            f" {sweeping.fired} fired, {len(sweeping.missed)} missed;"
            f" {len(sweeping.started)} executions, {len(scene.fleet.workers)} workers"
        )
    assert not sweeping.missed
