"""Limits that hold across the fleet: how many are inside at once, and how often one begins."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from uuid import UUID

import pytest

from fencepost import Handle
from fencepost.limits import Usage
from fencepost.records import EventName
from fencepost.stores.sql import SqlExecutionStore, SqlLimitStore
from tests.acceptance.fleet.conftest import VerifiedScene
from tests.acceptance.fleet.spans import most_at_once
from tests.support.apps import placement, spans
from tests.support.apps.spans import Span
from tests.support.scene import Scene

SECONDS = 60.0

# Between a free place and the next that begins, in seconds: not the 10 s after which one that
# waits looks by itself.
PROMPT = 2.0


@pytest.fixture(params=["postgres", "sqlite"], scope="module")
def scene(request: pytest.FixtureRequest, verified_scene: VerifiedScene) -> Iterator[Scene]:
    """Two workers with eight slots in all, for all tests of a database: each has its own limit."""
    with verified_scene(request.param, placement.__name__) as scene:
        scene.fleet.ready(2, concurrency=4)
        yield scene


def test_a_place_is_kept_through_a_kill_and_given_on_at_once(scene: Scene) -> None:
    scene.gates.shut("sit")
    handles = [scene.start(placement.seated, index=n, seconds=0.1) for n in range(12)]
    _await_usage(scene, Usage("seats", placement.SEATS, 12 - placement.SEATS))

    # Ten wait for their turn, and hold none of the six other slots.
    errands = [scene.start(placement.errand, index=n) for n in range(6)]
    assert [scene.succeeds(errand) for errand in errands] == list(range(6))
    seated = {span.execution_id for span in spans.read(scene.fp.database, "sit")}
    assert len(seated) == placement.SEATS

    doomed = next(n for n, handle in enumerate(handles) if handle.execution_id not in seated)
    fault = scene.fleet.arm("sit.inside", "kill", index=str(doomed))
    scene.gates.open("sit")
    victim = fault.victim(SECONDS)
    victim.wait()
    scene.fleet.start(concurrency=4)
    assert [scene.succeeds(handle, SECONDS) for handle in handles] == list(range(12))

    inside = occupied(spans.read(scene.fp.database, "sit"))
    assert len(inside) == 12
    assert most_at_once(inside) == placement.SEATS
    recovered = [scene.events(h.execution_id, EventName.RECOVERED) for h in handles]
    assert sum(map(len, recovered)) >= 1
    longest = longest_idling(inside)
    print(f"\nthe longest time from a free place to the next begin was {longest:.3f} s")
    assert longest < PROMPT
    _assert_once(scene, handles, "sit", again=sum(map(len, recovered)))


def test_each_key_has_places_of_its_own(scene: Scene) -> None:
    labels = ("north", "south", "west")
    scene.gates.shut("pay")
    handles = [
        scene.start(placement.paid, label=label, index=n, seconds=0.05)
        for n in range(3)
        for label in labels
    ]
    for label in labels:
        _await_usage(scene, Usage(f"tills:{label}", 1, 2))
    scene.gates.open("pay")
    for handle in handles:
        scene.succeeds(handle)
    found = spans.read(scene.fp.database, "pay")
    assert most_at_once(occupied(found)) == len(labels)
    for label in labels:
        inside = occupied(span for span in found if span.label == label)
        assert most_at_once(inside) == 1
        assert longest_idling(inside) < PROMPT
    _assert_once(scene, handles, "pay")


def test_no_more_begin_than_the_rate_has_starts_for(scene: Scene) -> None:
    count = 4 * placement.RATE
    handles = [scene.start(placement.entered, index=n) for n in range(count)]
    for handle in handles:
        scene.succeeds(handle)
    begun = [span.began_at for span in spans.read(scene.fp.database, "enter")]
    assert len(begun) == count
    # Starts are given one in each spacing, the first one not before somebody could ask for it.
    spacing = (placement.PER / placement.RATE).total_seconds()
    asked = min(_first_owned(scene, handle) for handle in handles)
    for number, began in enumerate(begun):
        assert began >= asked + number * spacing, f"{number} began too early"
    longest = max(later - earlier for earlier, later in itertools.pairwise(begun))
    densest = min(last - first for first, last in zip(begun, begun[placement.RATE :], strict=False))
    print(
        f"\n{count} began in {begun[-1] - begun[0]:.2f} s, {longest:.2f} s apart at most;"
        f" {placement.RATE + 1} of them within {densest:.2f} s"
    )
    assert longest < PROMPT
    _assert_once(scene, handles, "enter")


def _first_owned(scene: Scene, handle: Handle[int]) -> float:
    at = scene.events(handle.execution_id, EventName.LEASE_ACQUIRED)[0].at
    assert at is not None
    return at.timestamp()


def occupied(found: Iterable[Span]) -> list[tuple[float, float]]:
    """From each execution's first run to its end: a killed one's place was still taken."""
    began: dict[UUID, float] = {}
    ended: dict[UUID, float] = {}
    for span in found:
        began.setdefault(span.execution_id, span.began_at)
        if span.ended_at is not None:
            ended[span.execution_id] = span.ended_at
    return [(began[execution_id], ended[execution_id]) for execution_id in began]


def longest_idling(inside: list[tuple[float, float]]) -> float:
    """The longest time from an end to the beginning that took its place."""
    begins = sorted(begin for begin, _ in inside)
    ends = sorted(end for _, end in inside)
    # The first ones took no place that another had left.
    followers = begins[most_at_once(inside) :]
    return max(begin - end for end, begin in zip(ends, followers, strict=False))


def _await_usage(scene: Scene, wanted: Usage) -> None:
    executions = scene.fp.engine.executions
    assert isinstance(executions, SqlExecutionStore)
    store = SqlLimitStore(executions)
    scene.fleet.wait_for(lambda: wanted in store.usage(), SECONDS, f"{wanted}")


def _assert_once(scene: Scene, handles: list[Handle[int]], step: str, *, again: int = 0) -> None:
    """Each step was completed once, and only what was taken over ran again."""
    ran = 0
    for handle in handles:
        scene.assert_one_line(handle.execution_id)
        assert [entry.kind for entry in scene.chain(handle.execution_id)] == ["start", "step"]
        ran += scene.runs(handle.execution_id, step)
    assert len(handles) <= ran <= len(handles) + again
