"""What the reaper finds, and how soon it looks again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest
import sqlalchemy as sa

from fencepost import Saga, Status, step
from fencepost.engine.reaper import Reaper
from fencepost.errors import ServiceUnavailableError
from fencepost.records import Execution
from fencepost.stores.sql import schema
from tests.support.inline import Inline

CHILDREN = 6


@step
def carry(number: int) -> int:
    return number


@step
def add(numbers: list[int]) -> int:
    return sum(numbers)


def numbers_below(limit: int) -> list[int]:
    return list(range(limit))


carried = Saga("carried", input=int).then(carry)
one_by_one = (
    Saga("one-by-one", input=int)
    .map(carried, over=numbers_below, name="items", max_concurrency=1)
    .then(add)
)


@pytest.fixture(params=["postgres", "sqlite"])
def fleet(request: pytest.FixtureRequest) -> Iterator[Inline]:
    fleet = Inline(request.getfixturevalue(f"{request.param}_url"), [one_by_one])
    yield fleet
    fleet.close()


def test_a_parent_whose_places_the_reaper_fills_is_looked_at_again_at_once(fleet: Inline) -> None:
    """Every worker dies between a child's end and the next child's admission. Each time the
    reaper steps in, and must not come later to the parent for having been there before."""
    parent_id = fleet.start(one_by_one, CHILDREN)
    fleet.deliver(fleet.queue.popleft())
    children = list(fleet.queue)
    fleet.queue.clear()
    reaper = Reaper(fleet.engine)
    for number, child_id in enumerate(children):
        with fleet.killed_at("commit.after", step="carry"):
            fleet.deliver(child_id)
        assert fleet.row(child_id).status is Status.SUCCEEDED
        assert reaper.waiting() == 1, f"after child {number}"
        following = [*children[1:], parent_id][number]
        assert fleet.queue.popleft() == following
        assert not fleet.queue
    fleet.deliver(parent_id)
    parent = fleet.row(parent_id)
    assert (parent.status, parent.result) == (Status.SUCCEEDED, sum(range(CHILDREN)))


def test_a_parent_that_was_woken_is_left_alone_for_a_while(fleet: Inline) -> None:
    """Its message is under way: a fleet of reapers makes no storm of it."""
    parent_id = fleet.start(one_by_one, 1)
    fleet.deliver(fleet.queue.popleft())
    fleet.deliver(fleet.queue.popleft())
    reaper = Reaper(fleet.engine)
    assert [reaper.waiting(), reaper.waiting(), reaper.waiting()] == [1, 0, 0]
    assert list(fleet.queue) == [parent_id]


def test_what_the_broker_does_not_take_is_due_again_soon(
    fleet: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it is away: the wait doubles only for what was sent."""
    first, second = (fleet.start(carried, number) for number in range(2))
    fleet.queue.clear()
    tried: list[UUID] = []

    def refuse(execution: Execution) -> None:
        tried.append(execution.execution_id)
        raise ServiceUnavailableError("the broker is away", service="broker", url="")

    reaper = Reaper(fleet.engine)
    with monkeypatch.context() as patch:
        patch.setattr(fleet.engine.transport, "dispatch", refuse)
        for attempt in range(1, 8):
            for execution_id in (first, second):
                fleet.store.defer(execution_id, 0, timedelta(0))
            assert reaper.due() == 0
            assert len(tried) == attempt  # it has refused one: no other is tried
    counted = sa.select(schema.executions.c.dispatches)
    with fleet.store.reading() as connection:
        assert list(connection.scalars(counted)) == [0, 0]
    for execution_id in (first, second):
        fleet.store.defer(execution_id, 0, timedelta(0))
    assert reaper.due() == 2
    assert set(fleet.queue) == {first, second}
