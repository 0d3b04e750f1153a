"""A takeover raises the fences of its execution's sinks before anything runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fencepost import (
    Status,
    faults,
)
from fencepost.effects import EffectCall, EffectKind, EffectStatus
from fencepost.errors import (
    StaleLeaseFenceError,
)
from fencepost.records import EventName
from tests.unit.effects.sagas import Refunds
from tests.unit.effects.support import (
    Died,
    Receipt,
    Refund,
)


def test_a_takeover_raises_the_fence_before_anything_runs():
    world = Refunds(EffectKind.FENCED, resource=lambda request: f"order:{request.order}")
    execution_id = world.fleet.start(world.saga, Refund())
    world.fleet.killed_at("effect.after-intent", lambda: world.fleet.deliver(execution_id))
    assert world.sink.marks == []
    seen: list[int] = []
    world.before = lambda: seen.append(len(world.sink.marks))
    world.fleet.settle(execution_id)
    assert seen == [1]
    ((resource, token),) = world.sink.marks
    assert resource == "order:42"
    assert (token.execution_id, token.epoch) == (execution_id, 2)
    (event,) = world.fleet.events(execution_id, EventName.FENCE_RAISED)
    assert (event.epoch, event.sink, event.owner) == (2, "payments", token.owner)
    assert event.details == {"effect": "refund", "resource": "order:42"}


def test_a_fence_that_nobody_can_have_passed_is_not_raised():
    world = Refunds(EffectKind.FENCED)
    execution_id = world.fleet.start(world.saga, Refund())
    world.fleet.killed_at("effect.before-intent", lambda: world.fleet.deliver(execution_id))
    world.fleet.settle(execution_id)
    assert world.sink.marks == []
    assert world.fleet.row(execution_id).epoch == 2


def test_each_takeover_raises_it_again():
    world = Refunds(EffectKind.FENCED)
    execution_id = world.fleet.start(world.saga, Refund())
    points = ["effect.after-intent", "effect.applied", "effect.confirmed"]

    def hook(reached: str, _facts: dict[str, Any]) -> None:
        if points and reached == points[0]:
            points.pop(0)
            raise Died

    faults.install(hook)
    try:
        world.fleet.settle(execution_id)
    finally:
        faults.install(None)
    assert [token.epoch for _, token in world.sink.marks] == [2, 3, 4]


class FlakyFence:
    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.marks: list[int] = []

    def advance(self, resource: str, token: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the sink is down")
        self.marks.append(token.epoch)


def interrupted(fence: FlakyFence) -> tuple[Refunds, Any]:
    world = Refunds(EffectKind.FENCED, fence=fence)
    execution_id = world.fleet.start(world.saga, Refund())
    world.fleet.killed_at("effect.after-intent", lambda: world.fleet.deliver(execution_id))
    world.fleet.settle(execution_id)
    return world, execution_id


def test_nothing_runs_until_the_fence_could_be_raised():
    fence = FlakyFence(failures=2)
    world, execution_id = interrupted(fence)
    assert world.fleet.status(execution_id) == (Status.SUCCEEDED, EffectStatus.CONFIRMED)
    failed = world.fleet.events(execution_id, EventName.ATTEMPT_FAILED)
    assert [event.details["error"]["code"] for event in failed] == ["fence.unavailable"] * 2
    assert fence.marks == [4]
    assert [call.token.epoch for call, _ in world.sink.calls] == [4]


def test_a_fence_that_cant_be_raised_parks_in_the_end():
    world, execution_id = interrupted(FlakyFence(failures=1000))
    assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.INTENT)
    row = world.fleet.row(execution_id)
    assert row.error["code"] == "fence.unavailable"
    assert "the sink is down" in (row.parked_reason or "")
    assert len(world.fleet.events(execution_id, EventName.ATTEMPT_FAILED)) == 7
    assert world.sink.calls == []


def test_an_effect_that_is_not_declared_any_more_parks_in_the_end():
    world = Refunds(EffectKind.FENCED)
    execution_id = world.fleet.start(world.saga, Refund())
    world.fleet.killed_at("effect.after-intent", lambda: world.fleet.deliver(execution_id))
    world.fleet.engine.registry._effects.clear()
    world.fleet.settle(execution_id)
    row = world.fleet.row(execution_id)
    assert (row.status, row.error["code"]) == (Status.PARKED, "fence.unavailable")
    assert "no saga here declares it" in (row.parked_reason or "")


def test_an_owner_whom_a_sink_refuses_tries_again_and_parks_in_the_end():
    """Its mark is too high, though SQL says that the caller is the owner."""
    world = Refunds(EffectKind.FENCED)

    def refuse(call: EffectCall, _request: Refund) -> Receipt:
        raise StaleLeaseFenceError(call.token.execution_id, held=call.token.epoch, current=99)

    world.effect.function = refuse
    execution_id = world.run()
    row = world.fleet.row(execution_id)
    assert (row.status, row.error["code"]) == (Status.PARKED, "fence.stale-epoch")
    assert "refused 10 times" in (row.parked_reason or "")
    # Nobody has taken over: this was no zombie.
    assert world.fleet.events(execution_id, EventName.ZOMBIE_WRITE_REJECTED) == []


def test_a_zombie_that_a_sink_refuses_is_on_record():
    world = Refunds(EffectKind.FENCED)
    executions = world.fleet.engine.executions

    def overtaken(call: EffectCall, _request: Refund) -> Receipt:
        held = call.token
        executions.acquire(held.execution_id, "successor", held.epoch + 1, timedelta(seconds=30))
        raise StaleLeaseFenceError(held.execution_id, held=held.epoch, current=held.epoch + 1)

    world.effect.function = overtaken
    execution_id = world.fleet.start(world.saga, Refund())
    world.fleet.deliver(execution_id)
    (event,) = world.fleet.events(execution_id, EventName.ZOMBIE_WRITE_REJECTED)
    record = world.fleet.effect(execution_id)
    assert (event.epoch, event.current_epoch, event.current_owner) == (1, 2, "successor")
    assert (event.sink, event.step_key) == ("payments", record.step_key)
    assert event.payload_digest == record.request_digest
    assert event.details == {"key": record.key, "effect": "refund"}
    # And the checkpoint store has refused what the zombie then wrote there.
    assert world.fleet.events(execution_id, EventName.LEASE_LOST)
