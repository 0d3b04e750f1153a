"""A rolling restart onto changed code, with executions in all states under way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from fencepost import Fencepost, Status
from fencepost.records import EventName, Execution
from tests.acceptance.fleet.conftest import VerifiedScene
from tests.acceptance.fleet.story import SECONDS, Story
from tests.support.apps import composition, versions, versions_new, versions_old
from tests.support.apps.sagas import Order
from tests.support.apps.versions import APPENDED, BESIDE, NEW, OLD, REWORKED, STEADY
from tests.support.fleet import ROOT, Worker
from tests.support.scene import Scene

WORKERS, CONCURRENCY = 3, 4
GOES_ON = (STEADY, BESIDE)
CHANGED = (APPENDED, REWORKED)
NEW_CODE: dict[str, Any] = {"SAMPLE_SAGAS": versions_new.__name__}


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_a_deploy_in_mid_flight(verified_scene: VerifiedScene, kind: str) -> None:
    with verified_scene(kind, versions_old.__name__) as scene:
        scene.fleet.ready(WORKERS, concurrency=CONCURRENCY)
        story = Story(scene)
        states = story.states()
        print(f"\n{kind}: {states.total()} executions, {dict(states)}")
        assert states.total() >= 50

        named = _in_flight(scene)
        live = [row for row in story.rows(*versions.NAMES) if not row.status.ended]
        known = {(saga.name, saga.version) for saga in new_code(scene).registry}
        would_be_stranded = [row for row in live if (row.saga, row.version) not in known]
        assert named == Counter((row.saga, row.version) for row in would_be_stranded)
        assert {saga.partition("-")[0] for saga, _ in named} == set(CHANGED)

        _roll(scene, story)
        after = [scene.row(row.execution_id) for row in would_be_stranded]
        stranded = [row for row in after if not row.status.ended]
        assert len(stranded) >= 10
        before = {row.execution_id: _facts(scene, row) for row in stranded}

        # What the new code knows goes on, and so does what is started now.
        scene.gates.open()
        story.say(scene.fp, *GOES_ON)
        story.assert_ended_well(*GOES_ON)
        for name, family in NEW.items():
            for saga in (family.line, family.parcels):
                label = f"{name}-new"
                handle = scene.fp.start(saga, Order(label=label, count=2))
                assert scene.succeeds(handle, SECONDS) == label
        _assert_left_alone(scene, before)

        _move_what_fits(scene, story, stranded)
        scene.fleet.ready(1, concurrency=CONCURRENCY)
        story.say(scene.fp, *CHANGED)
        story.assert_ended_well(*CHANGED)
        story.assert_done_once()
        for execution_id in story.of(*versions.NAMES):
            assert scene.events(execution_id, EventName.RECOVERED) == []


def new_code(scene: Scene) -> Fencepost:
    """What a process of the new code knows."""
    return composition.make(
        scene.redis_url,
        {},
        sagas=versions_new.__name__,
        database_url=scene.database_url,
        lease_ttl=scene.lease_ttl,
    )


def _in_flight(scene: Scene) -> Counter[tuple[str, str]]:
    """What `fencepost check --in-flight` says, before the deploy, of the new code."""
    app = "tests.support.apps.worker:app"
    told = subprocess.run(
        [sys.executable, "-m", "fencepost", "check", "--in-flight", app, "--json"],
        env={**os.environ, **scene.environment, **NEW_CODE},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert told.returncode == 1, told.stdout + told.stderr
    unknown = [one for one in json.loads(told.stdout)["in_flight"] if not one["known"]]
    return Counter({(one["saga"], one["version"]): sum(one["counts"].values()) for one in unknown})


def _roll(scene: Scene, story: Story) -> None:
    """Replace one worker after the other, each in the middle of steps."""
    began = time.monotonic()
    for worker in scene.fleet.alive:
        held = story.inside(worker.name)
        worker.terminate()
        _await_drain(scene, worker)
        (replacement,) = scene.fleet.start(concurrency=CONCURRENCY, **NEW_CODE)
        if held:
            scene.gates.open(*held)
        assert worker.wait(SECONDS) == 0
        replacement.await_ready()
    took = time.monotonic() - began
    print(f"the rolling restart of {WORKERS} workers took {took:.1f} s")


def _await_drain(scene: Scene, worker: Worker) -> None:
    scene.fleet.wait_for(lambda: "Warm shutdown" in worker.log(), SECONDS, "a warm shutdown")


def _facts(scene: Scene, row: Execution) -> Any:
    """All that an owner would have changed."""
    chain = scene.chain(row.execution_id)
    return (row.version, row.status, row.phase, row.epoch, row.owner, row.attempt, chain)


def _assert_left_alone(scene: Scene, before: dict[UUID, Any]) -> None:
    """Stranded ones wait untouched, and each process has said at most once that it can't help."""
    rows = [scene.row(execution_id) for execution_id in before]
    offered = [row.execution_id for row in rows if _looks_runnable(row)]
    for execution_id in [*offered, *offered]:
        scene.dispatch_again(execution_id)

    def said() -> Counter[tuple[UUID, str | None]]:
        events = [event for i in offered for event in scene.events(i, EventName.VERSION_UNKNOWN)]
        return Counter((event.execution_id, event.owner) for event in events)

    scene.fleet.wait_for(
        lambda: scene.in_queues() == 0 and {i for i, _ in said()} == set(offered),
        SECONDS,
        "each to be refused",
    )
    print(f"{len(before)} were stranded; that was said {said().total()} times of {len(offered)}")
    assert set(said().values()) == {1}
    assert {i: _facts(scene, scene.row(i)) for i in before} == before


def _looks_runnable(row: Execution) -> bool:
    return row.status in (Status.ACTIVE, Status.WAITING) and row.paused_at is None


def _move_what_fits(scene: Scene, story: Story, stranded: list[Execution]) -> None:
    """Of the family with a step more at its end: all that go forward. Of the other: none."""
    fp = new_code(scene)
    try:
        for family, dry_run in ((OLD[APPENDED], False), (OLD[REWORKED], True)):
            for saga in family.all:
                mine = {row.execution_id: row for row in stranded if row.saga == saga.name}
                done = fp.repin(saga.name, by="us", why="the deploy", dry_run=dry_run)
                assert {*done.moved, *(left.execution_id for left in done.left)} == mine.keys()
                for execution_id in done.moved:
                    begun = mine[execution_id].head_seq > 0
                    assert not begun or not dry_run
                for left in done.left:
                    undoing = mine[left.execution_id].phase == "compensating"
                    assert undoing or dry_run, left.reason
    finally:
        fp.database.dispose()
