"""Effects in the ledger's own database, inside a step's transaction."""

from __future__ import annotations

import pytest

from fencepost import (
    Status,
)
from fencepost.effects import EffectStatus
from tests.unit.effects.sagas import Bookings, fail
from tests.unit.effects.support import (
    Refund,
)


def test_a_transactional_effect_is_committed_with_its_step():
    world = Bookings()
    execution_id = world.fleet.run(world.saga, Refund())
    assert world.fleet.status(execution_id) == (Status.SUCCEEDED, EffectStatus.CONFIRMED)
    key = f"{execution_id}:enter:1:book:1"
    assert world.fleet.store.added == [(key, 999)]
    record = world.fleet.effect(execution_id)
    assert (record.key, record.sink, record.result) == (key, "ledger", {"number": 1})


@pytest.mark.parametrize(
    "point",
    [
        "effect.before-intent",
        "effect.after-intent",
        "effect.applied",
        "effect.confirmed",
        "step.after",
    ],
)
def test_wherever_a_worker_is_killed_a_booking_is_there_once(point):
    world = Bookings()
    execution_id = world.fleet.start(world.saga, Refund())
    world.fleet.killed_at(point, lambda: world.fleet.deliver(execution_id))
    assert world.fleet.store.added == []
    assert world.fleet.effects.of_execution(execution_id) == []
    world.fleet.settle(execution_id)
    assert world.fleet.status(execution_id) == (Status.SUCCEEDED, EffectStatus.CONFIRMED)
    assert len(world.fleet.store.added) == 1


def test_a_transactional_step_that_fails_leaves_nothing_in_doubt():
    world = Bookings()
    world.after = fail(ValueError("no"))
    execution_id = world.fleet.run(world.saga, Refund())
    assert world.fleet.row(execution_id).status is Status.FAILED
    assert world.fleet.effects.of_execution(execution_id) == []
    assert world.fleet.store.added == []


def test_a_booking_whose_result_cant_be_kept_is_not_made():
    world = Bookings()
    world.result = {"text": "no number"}
    execution_id = world.fleet.run(world.saga, Refund())
    row = world.fleet.row(execution_id)
    assert (row.status, row.error["code"]) == (Status.FAILED, "payload.invalid")
    assert world.fleet.store.added == []


def test_a_business_key_books_once_for_all_executions():
    world = Bookings(key="order:42")
    results = [world.fleet.run(world.saga, Refund()) for _ in range(3)]
    assert {world.fleet.row(i).result["number"] for i in results} == {1}
    assert world.runs == 1
    assert world.fleet.store.added == [("order:42", 999)]
    other = world.fleet.run(world.saga, Refund(cents=1))
    row = world.fleet.row(other)
    assert (row.status, row.error["code"]) == (Status.FAILED, "effect.key-conflict")
