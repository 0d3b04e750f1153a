"""Sinks that forget, calls that are late, people who decide, and zombies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fencepost import faults
from fencepost.effects import EffectKind, EffectStatus, Landed, NotLanded
from fencepost.engine.effects import InDoubt
from fencepost.errors import (
    EffectRefusedError,
    ExecutionLeaseLostError,
    LeaseDeadlineError,
)
from fencepost.records import EventName
from tests.conformance.support import Worker, started
from tests.unit.effects.support import (
    CALLED,
    KEY,
    SINK,
    THRICE,
    CardDeclinedError,
    Died,
    Receipt,
    Refund,
    World,
    declare,
)


@pytest.fixture
def world():
    return World()


# -- retention and calls under way -----------------------------------------------------------------

DAY = timedelta(days=1)


def test_a_key_is_sent_again_while_the_sink_remembers_it(world):
    effect = declare(world.sink, EffectKind.IDEMPOTENT, retention=DAY)
    world.brought_to(effect, EffectStatus.INTENT)
    world.clock.now += DAY.total_seconds() - 1
    assert world.perform(effect) == Receipt(number=1)


def test_a_key_that_the_sink_may_have_forgotten_is_never_sent_again(world):
    effect = declare(world.sink, EffectKind.IDEMPOTENT, retention=DAY)
    world.brought_to(effect, EffectStatus.INTENT)
    world.clock.now += DAY.total_seconds()
    doubt = world.in_doubt(effect)
    assert doubt.retry_in is None
    assert "forgets keys after 1 day" in doubt.reason
    assert world.sink.calls == []


def test_retries_do_not_renew_the_sinks_memory(world):
    effect = declare(world.sink, EffectKind.IDEMPOTENT, retention=DAY)
    world.brought_to(effect, EffectStatus.INTENT)
    world.clock.now += DAY.total_seconds() / 2
    world.sink.answers = [TimeoutError()]
    assert world.in_doubt(effect).retry_in is not None
    world.clock.now += DAY.total_seconds() / 2
    assert world.in_doubt(effect).retry_in is None
    assert len(world.sink.calls) == 1


def test_a_key_must_arrive_while_it_is_remembered(world):
    hour = timedelta(hours=1)
    effect = declare(world.sink, EffectKind.IDEMPOTENT, retention=DAY, in_flight=hour)
    world.brought_to(effect, EffectStatus.INTENT)
    world.clock.now += (DAY - hour).total_seconds()
    assert world.in_doubt(effect).retry_in is None
    assert world.sink.calls == []


@pytest.mark.parametrize(
    ("answer", "calls", "result"),
    [(Landed(Receipt(number=9)), 0, 9), (NotLanded(), 1, 1)],
)
def test_past_the_retention_a_probe_is_asked(world, answer, calls, result):
    effect = declare(world.sink, EffectKind.IDEMPOTENT, retention=DAY, probe=world.sink.probe)
    world.brought_to(effect, EffectStatus.INTENT)
    world.clock.now += DAY.total_seconds()
    world.sink.probed = [answer]
    assert world.perform(effect) == Receipt(number=result)
    assert (len(world.sink.probes), len(world.sink.calls)) == (1, calls)


def test_not_landed_counts_once_no_call_can_be_under_way(world):
    minute = timedelta(minutes=1)
    effect = declare(world.sink, EffectKind.RECONCILABLE, in_flight=minute)
    world.brought_to(effect, EffectStatus.INTENT)
    world.clock.now += 15
    doubt = world.in_doubt(effect)
    assert doubt.retry_in == timedelta(seconds=45)
    assert "may still be under way" in doubt.reason
    assert world.sink.calls == []
    world.clock.now += 45
    assert world.perform(effect) == Receipt(number=1)


def test_landed_counts_at_once(world):
    effect = declare(world.sink, EffectKind.RECONCILABLE, in_flight=timedelta(minutes=1))
    world.brought_to(effect, EffectStatus.INTENT)
    world.sink.probed = [Landed(Receipt(number=9))]
    assert world.perform(effect) == Receipt(number=9)


def test_each_call_may_be_under_way_anew(world):
    minute = timedelta(minutes=1)
    effect = declare(world.sink, EffectKind.RECONCILABLE, in_flight=minute)
    world.brought_to(effect, EffectStatus.INTENT)
    world.clock.now += 60
    world.sink.answers = [TimeoutError()]
    world.in_doubt(effect)
    world.clock.now += 30
    assert world.in_doubt(effect).retry_in == timedelta(seconds=30)
    assert len(world.sink.calls) == 1


# -- people ----------------------------------------------------------------------------------------


def resolved(world: World, result: Any) -> None:
    world.park()
    world.effects.resolve(SINK, KEY, landed=True, result=result, by="ada", why="I looked")
    world.store.unpark(world.owner.execution_id, "resolved")
    world.take_over()


@pytest.mark.parametrize("kind", CALLED)
def test_what_a_person_found_landed_is_the_result(world, kind):
    effect = declare(world.sink, kind)
    world.brought_to(effect, EffectStatus.IN_DOUBT)
    resolved(world, {"number": 77})
    assert world.perform(effect) == Receipt(number=77)
    assert world.sink.calls == world.sink.probes == []


def test_what_a_person_gave_wrongly_can_be_given_again(world):
    effect = declare(world.sink, EffectKind.AT_MOST_ONCE)
    world.brought_to(effect, EffectStatus.IN_DOUBT)
    resolved(world, {"nummer": 77})
    doubt = world.in_doubt(effect)
    assert doubt.retry_in is None
    assert "what ada gave as the stored result of effect 'refund'" in doubt.reason
    assert world.record().status is EffectStatus.IN_DOUBT
    resolved(world, {"number": 77})
    assert world.perform(effect) == Receipt(number=77)
    assert world.sink.calls == []


# -- ownership -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CALLED)
@pytest.mark.parametrize("time_left", [0.0, -1.0])
def test_no_call_is_made_past_the_deadline(world, kind, time_left):
    world.time_left = time_left
    with pytest.raises(LeaseDeadlineError) as caught:
        world.perform(declare(world.sink, kind))
    assert caught.value.code == "lease.deadline-passed"
    assert world.sink.calls == []
    assert world.record().status is EffectStatus.INTENT


@pytest.mark.parametrize("kind", CALLED)
def test_a_deadline_that_passes_right_before_the_call_stops_it(world, kind):
    """The intent is on record; a freeze between it and the call must not lead to the call."""
    effect = declare(world.sink, kind)

    def freeze(point: str, _facts: dict[str, Any]) -> None:
        if point == "effect.after-intent":
            world.time_left = 0.0

    faults.install(freeze)
    try:
        with pytest.raises(LeaseDeadlineError):
            world.perform(effect)
    finally:
        faults.install(None)
    assert world.sink.calls == []


@pytest.mark.parametrize("kind", CALLED)
def test_a_zombie_records_no_intent_and_calls_nobody(world, kind):
    effect = declare(world.sink, kind)
    performer = world.performer(effect)
    world.take_over()
    with pytest.raises(ExecutionLeaseLostError):
        performer.perform(effect, Refund(), KEY)
    assert world.sink.calls == []
    assert world.keys == []


@pytest.mark.parametrize(
    "kind", [EffectKind.FENCED, EffectKind.IDEMPOTENT, EffectKind.RECONCILABLE]
)
def test_a_zombie_that_would_call_again_is_refused_before_it_does(world, kind):
    effect = declare(world.sink, kind)
    world.brought_to(effect, EffectStatus.IN_DOUBT)
    performer = world.performer(effect)

    def frozen_at(point: str, _facts: dict[str, Any]) -> None:
        if point in ("effect.after-intent", "effect.after-probe"):
            faults.install(None)
            world.take_over()

    faults.install(frozen_at)
    try:
        with pytest.raises(ExecutionLeaseLostError):
            performer.perform(effect, Refund(), KEY)
    finally:
        faults.install(None)
    assert world.sink.calls == []


@pytest.mark.parametrize("kind", CALLED)
def test_a_zombie_whose_call_landed_confirms_nothing(world, kind):
    effect = declare(world.sink, kind)
    zombie = world.owner.token()
    world.sink.while_called = world.take_over
    with pytest.raises(ExecutionLeaseLostError):
        world.perform(effect)
    assert world.record().status is EffectStatus.INTENT
    events = world.store.events([world.owner.execution_id])
    (refused,) = [event for event in events if event.name == EventName.LEASE_LOST]
    assert (refused.sink, refused.owner, refused.epoch) == (SINK, zombie.owner, 1)


def test_a_killed_call_leaves_its_intent(world):
    effect = declare(world.sink, EffectKind.AT_MOST_ONCE)

    def die() -> None:
        raise Died

    world.sink.while_called = die
    with pytest.raises(Died):
        world.perform(effect)
    assert world.record().status is EffectStatus.INTENT


@pytest.mark.parametrize("kind", CALLED)
def test_a_performer_knows_what_it_left_undecided(world, kind):
    effect = declare(world.sink, kind, retry=THRICE)
    performer = world.performer(effect)
    performer.perform(effect, Refund(), "lands")
    world.sink.answers = [CardDeclinedError("no")]
    with pytest.raises(EffectRefusedError):
        performer.perform(effect, Refund(), "refused")
    assert performer.undecided == set()
    world.sink.answers = [TimeoutError()]
    with pytest.raises(InDoubt):
        performer.perform(effect, Refund(), "unknown")
    world.time_left = 0.0
    with pytest.raises(LeaseDeadlineError):
        performer.perform(effect, Refund(), "announced")
    assert performer.undecided == {"unknown", "announced"}


def test_two_owners_of_two_executions_share_a_business_key(world):
    """Ten executions that all refund order 42 refund it once."""
    effect = declare(world.sink, EffectKind.AT_MOST_ONCE)
    owners: list[Worker] = [started(world.store) for _ in range(10)]
    results = [world.perform(effect, worker=owner) for owner in owners]
    assert results == [Receipt(number=1)] * 10
    assert len(world.sink.calls) == 1
