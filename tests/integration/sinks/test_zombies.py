"""A worker that is frozen in mid-write, and thaws after its successor has raised the fence but
before that has written anything: refused at every sink that checks fences.

On real workers and real sinks. The same race in one process, with the raised fence taken away, is
in `test_raised_fence.py`.
"""

from __future__ import annotations

import pytest

from fencepost import Status
from fencepost.records import EventName
from tests.integration.sinks.conftest import Market
from tests.integration.sinks.market import OPEN

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("name", OPEN)
def test_a_zombie_is_refused_before_its_successor_has_written(
    fleet_of_market: Market, name: str
) -> None:
    market, sink = fleet_of_market, fleet_of_market.sinks[name]
    reference = f"between-{name}"
    frozen = market.fleet.arm("sink.writing", "freeze", reference=reference)
    handle = market.start(name, reference)
    zombie = frozen.victim()
    raised = market.fleet.arm("fence.advanced", "pause", effect=f"append-{name}")
    successor = raised.victim()
    assert successor is not zombie
    assert sink.landed(reference) == []

    zombie.thaw()
    refusals = market.fleet.wait_for(
        lambda: sink.refusals(reference), 20, "the sink to put the refusal on record"
    )
    assert refusals is not None
    (refusal,) = refusals
    assert (refusal.held, refusal.current) == (1, 2)
    assert refusal.execution_id == str(handle.execution_id)
    assert zombie.name in refusal.owner
    assert successor.name in refusal.current_owner
    assert refusal.key == f"{handle.execution_id}:write-{name}:1:append-{name}:1"
    assert sink.landed(reference) == []
    market.await_dropped(zombie, handle)

    raised.go()
    assert handle.wait(20).status is Status.SUCCEEDED
    assert sink.landed(reference) == [reference]
    (event,) = [
        event
        for event in market.fp.engine.executions.events([handle.execution_id])
        if event.name == EventName.FENCE_RAISED
    ]
    assert (event.epoch, event.sink) == (2, name)


@pytest.mark.parametrize("name", OPEN)
def test_a_zombie_that_comes_last_changes_nothing(fleet_of_market: Market, name: str) -> None:
    market, sink = fleet_of_market, fleet_of_market.sinks[name]
    reference = f"last-{name}"
    frozen = market.fleet.arm("sink.writing", "freeze", reference=reference)
    handle = market.start(name, reference)
    zombie = frozen.victim()
    assert handle.wait(20).status is Status.SUCCEEDED
    assert sink.landed(reference) == [reference]
    zombie.thaw()
    market.await_dropped(zombie, handle)
    assert len(sink.refusals(reference) or []) == 1
    assert sink.landed(reference) == [reference]


@pytest.mark.parametrize("name", OPEN)
def test_a_write_whose_worker_was_lost_after_it_landed_is_not_repeated(
    fleet_of_market: Market, name: str
) -> None:
    """The sink remembers the key, and gives the successor the first result."""
    market, sink = fleet_of_market, fleet_of_market.sinks[name]
    reference = f"landed-{name}"
    lost = market.fleet.arm("effect.applied", "freeze", effect=f"append-{name}")
    handle = market.start(name, reference)
    zombie = lost.victim()
    assert sink.landed(reference) == [reference]
    assert handle.wait(20).status is Status.SUCCEEDED
    assert handle.result(1) == reference
    assert sink.landed(reference) == [reference]
    zombie.thaw()
    market.await_dropped(zombie, handle)
