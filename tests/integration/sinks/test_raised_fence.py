"""What raising the fence at a takeover is worth: the same race with it and without it.

In one process, where a frozen worker is a call inside its effect, so that nothing depends on time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import FenceToken, Status, faults
from fencepost.records import EventName
from fencepost.testing.sinks import SinkUnderTest
from tests.conformance.sinks.harnesses import FilesUnderTest, SqlUnderTest, prepare
from tests.integration.sinks.market import Order, saga_for
from tests.support.inline import Inline


class RaisesNothing(FilesUnderTest):
    """A sink that checks its fence, at whose side nobody raises it."""

    def advance(self, resource: str, token: FenceToken) -> None:
        pass


@pytest.fixture
def fleet_of() -> Iterator[Any]:
    opened = []

    def make(url: str, sink: SinkUnderTest) -> tuple[Inline, Any]:
        saga = saga_for("here", sink)
        fleet = Inline(url, [saga])
        opened.append(fleet)
        return fleet, saga

    yield make
    for fleet in opened:
        fleet.close()


class SuccessorIsLost(BaseException):
    """The new owner is lost too, before it has written anything."""


def takeover_up_to(fleet: Inline, point: str) -> None:
    """Another worker takes everything over, and gets as far as this point."""

    def hook(reached: str, _facts: dict[str, Any]) -> None:
        if reached == point:
            raise SuccessorIsLost

    fleet.expire_leases()
    faults.install(hook)
    for execution in fleet.live():
        with pytest.raises(SuccessorIsLost):
            fleet.deliver(execution.execution_id)


def race(fleet: Inline, saga: Any, sink: SinkUnderTest, up_to: str) -> list[str]:
    """What has landed when the zombie is done, and before the second successor begins."""
    execution_id = fleet.start(saga, Order(reference="r"))
    with fleet.meanwhile("sink.writing", lambda: takeover_up_to(fleet, up_to)):
        fleet.deliver(fleet.queue.popleft())
    landed = sink.landed("r")
    faults.install(None)
    fleet.expire_leases()
    fleet.dispatch(fleet.row(execution_id))
    fleet.drain()
    assert fleet.row(execution_id).status is Status.SUCCEEDED
    assert sink.landed("r") == ["r"]
    return landed


def test_it_keeps_a_zombie_out_before_the_new_owners_first_write(
    sqlite_url: str, tmp_path: Path, fleet_of: Any
) -> None:
    sink = FilesUnderTest(tmp_path / "files")
    fleet, saga = fleet_of(sqlite_url, sink)
    assert race(fleet, saga, sink, "fence.advanced") == []
    refused = sink.refusals("r")
    assert refused is not None
    assert [(r.held, r.current) for r in refused] == [(1, 2)]


def test_without_it_a_zombie_gets_through(sqlite_url: str, tmp_path: Path, fleet_of: Any) -> None:
    """The key still keeps the effect from landing twice; that it came late, nothing does."""
    sink = RaisesNothing(tmp_path / "files")
    fleet, saga = fleet_of(sqlite_url, sink)
    assert race(fleet, saga, sink, "fence.advanced") == ["r"]


def test_it_is_on_the_ledgers_own_database_as_on_any_other(
    postgres_url: str, fleet_of: Any
) -> None:
    sink = SqlUnderTest(postgres_url, ledgers=True)
    fleet, saga = fleet_of(postgres_url, sink)
    prepare(postgres_url)
    assert race(fleet, saga, sink, "fence.advanced") == []
    (execution_id,) = {r.execution_id for r in sink.refusals("r") or []}
    assert len(fleet.events(execution_id, EventName.FENCE_RAISED)) == 2


def test_a_sink_that_cannot_be_raised_holds_its_execution_back(
    sqlite_url: str, tmp_path: Path, fleet_of: Any
) -> None:
    """Nobody goes on past a fence that isn't up."""

    class Away(FilesUnderTest):
        away = True

        def advance(self, resource: str, token: FenceToken) -> None:
            if self.away:
                raise ConnectionError("the sink is away")
            super().advance(resource, token)

    sink = Away(tmp_path / "files")
    fleet, saga = fleet_of(sqlite_url, sink)
    execution_id = fleet.start(saga, Order(reference="r"))
    with fleet.meanwhile("sink.writing", lambda: takeover_up_to(fleet, "fence.before-advance")):
        fleet.deliver(fleet.queue.popleft())
    faults.install(None)
    fleet.expire_leases()
    fleet.deliver(execution_id)
    row = fleet.row(execution_id)
    assert (row.status, row.error["code"]) == (Status.ACTIVE, "fence.unavailable")
    sink.away = False
    fleet.drain()
    assert fleet.row(execution_id).status is Status.SUCCEEDED
