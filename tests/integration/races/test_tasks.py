"""Durable tasks whose code takes another way the second time, and ends before it comes to pay."""

from __future__ import annotations

import pytest

from tests.acceptance.races import stories
from tests.acceptance.races.stories import world
from tests.integration.races.bench import Bench

POINTS = [
    ("shop.sending", ("effect.in-doubt", 0)),
    ("effect.applied", ("effect.in-doubt", 1)),
    ("effect.confirmed", ("replay.step-mismatch", 1)),
]


@pytest.mark.parametrize(("point", "then"), POINTS)
@pytest.mark.parametrize("ends", ["raises", "returns"])
def test_a_tasks_second_run_does_not_come_to_pay(
    bench: Bench, order: str, point: str, then: tuple[str, int], ends: str
) -> None:
    """It has neither failed nor succeeded while a charge stands that it doesn't know of."""
    code, charges = then
    bank = bench.banks["dedupes"]
    task = stories.charging_task if ends == "raises" else stories.charging_task_that_shrugs
    execution_id = bench.start(task, bench.money(order))
    with bench.killed_at(point):
        bench.deliver(execution_id)
    world.cancelled.add(order)
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.assert_parked(execution_id, code)
    bench.assert_moved(bank, order, charges=charges)


def test_a_task_that_failed_is_done_with_what_a_person_has_decided(
    bench: Bench, order: str
) -> None:
    bank = bench.banks["dedupes"]
    execution_id = bench.start(stories.charging_task, bench.money(order))
    with bench.killed_at("shop.sending"):
        bench.deliver(execution_id)
    world.cancelled.add(order)
    bench.dispatch(bench.row(execution_id))
    bench.drain()
    bench.resolve(execution_id, landed=False, why="not on the statement")
    bench.drain()
    assert bench.code(execution_id) == "shop.cancelled"
    bench.assert_moved(bank, order, charges=0)
