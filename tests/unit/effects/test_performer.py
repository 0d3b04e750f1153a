"""Every kind of effect, arriving at every state in which an earlier owner can have left it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from fencepost import faults, serde
from fencepost.effects import EffectCall, EffectKind, EffectStatus, Landed, NotLanded, Unknown
from fencepost.errors import (
    EffectKeyConflictError,
    EffectRefusedError,
    StaleLeaseFenceError,
)
from fencepost.records import EventName
from tests.conformance.support import names, started
from tests.unit.effects.support import (
    CALLED,
    KEY,
    SINK,
    THRICE,
    CardDeclinedError,
    Receipt,
    Refund,
    World,
    declare,
)

REPEATABLE = [EffectKind.FENCED, EffectKind.IDEMPOTENT]
UNKNOWN = [EffectStatus.INTENT, EffectStatus.IN_DOUBT]
WRONG_INSIDE = Receipt.model_construct(number="x")  # type: ignore[arg-type]
NOTHING = [EffectStatus.REFUSED, EffectStatus.NOT_LANDED]


@pytest.fixture
def world():
    return World()


# -- a first call ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CALLED)
def test_an_effect_is_recorded_called_and_confirmed(world, kind):
    effect = declare(world.sink, kind)

    def at_the_sink() -> None:
        assert world.record().status is EffectStatus.INTENT

    world.sink.while_called = at_the_sink
    assert world.perform(effect) == Receipt(number=1)
    ((call, request),) = world.sink.calls
    assert request == Refund()
    assert (call.key, call.number, call.token) == (KEY, 1, world.owner.token())
    assert call.resource == str(world.owner.execution_id)
    assert call.digest == serde.digest({"order": 42, "cents": 999})
    assert call.time_left == timedelta(seconds=5)
    record = world.record()
    assert (record.status, record.result) == (EffectStatus.CONFIRMED, {"number": 1})
    assert (record.kind, record.effect, record.calls) == (kind, "refund", 1)
    assert record.request == {"order": 42, "cents": 999}


def test_the_crash_points_come_in_order(world):
    points: list[str] = []

    def hook(point: str, facts: dict[str, Any]) -> None:
        assert facts["key"] == KEY
        points.append(point.removeprefix("effect."))

    effect = declare(world.sink, EffectKind.RECONCILABLE)
    world.sink.while_called = lambda: points.append("the call")
    world.sink.answers = [TimeoutError(), Receipt(number=1)]
    faults.install(hook)
    try:
        world.in_doubt(effect)
        points.append("again")
        world.perform(effect)
    finally:
        faults.install(None)
    first, again = points[: points.index("again")], points[points.index("again") + 1 :]
    concluded = ["before-conclusion", "after-conclusion"]
    assert first == ["before-intent", "after-intent", "the call", *concluded]
    probed = ["before-probe", "after-probe"]
    called = ["the call", "applied", *concluded, "confirmed"]
    assert again == ["before-intent", "after-intent", *probed, *called]


def test_what_a_call_is_given_is_what_a_replay_would_be_given(world):
    effect = declare(world.sink, EffectKind.IDEMPOTENT)
    assert world.perform(effect, {"order": 7}) == Receipt(number=1)
    ((_, request),) = world.sink.calls
    assert request == Refund(order=7)
    assert isinstance(request, Refund)


def test_the_result_is_what_a_replay_gives(world):
    effect = declare(world.sink, EffectKind.IDEMPOTENT)
    world.sink.answers = [{"number": 3}]
    assert world.perform(effect) == Receipt(number=3)
    assert world.perform(effect) == Receipt(number=3)
    assert len(world.sink.calls) == 1


def test_a_resource_is_named_by_the_request(world):
    effect = declare(world.sink, EffectKind.FENCED, resource=lambda r: f"order:{r.order}")
    world.perform(effect)
    ((call, _),) = world.sink.calls
    assert call.resource == world.record().resource == "order:42"


def test_async_effects_and_probes_are_run_to_their_end(world):
    async def call(call: EffectCall, request: Refund) -> Receipt:
        await asyncio.sleep(0)
        return Receipt(number=request.order)

    async def probe(call: EffectCall, request: Refund) -> NotLanded:
        await asyncio.sleep(0)
        return NotLanded()

    effect: Any = declare(world.sink, EffectKind.RECONCILABLE, probe=probe)
    effect.function = call
    world.brought_to(declare(world.sink, EffectKind.RECONCILABLE), EffectStatus.IN_DOUBT)
    assert world.perform(effect) == Receipt(number=42)

    async def body() -> Any:
        return world.perform(effect, key="order:43")

    assert asyncio.run(body()) == Receipt(number=42)


# -- keys ------------------------------------------------------------------------------------


def test_performances_in_one_step_have_keys_of_their_own(world):
    refund = declare(world.sink, EffectKind.IDEMPOTENT)
    other = declare(world.sink, EffectKind.IDEMPOTENT, name="mail")
    performer = world.performer(refund, other)
    for effect in (refund, refund, other):
        performer.perform(effect, Refund(), None)
    step_key = world.owner.token().step_key
    expected = [f"{step_key}:refund:1", f"{step_key}:refund:2", f"{step_key}:mail:1"]
    assert world.keys == expected
    assert [call.key for call, _ in world.sink.calls] == expected


def test_another_attempt_comes_to_the_same_keys(world):
    effect = declare(world.sink, EffectKind.IDEMPOTENT)
    world.perform(effect, key=None)
    world.take_over()
    world.perform(effect, key=None, attempt=2)
    assert len(world.keys) == len(world.sink.calls) == 1


def test_a_compensation_may_perform_the_effect_of_its_step(world):
    """It works under the step key of the step that it undoes."""
    effect = declare(world.sink, EffectKind.IDEMPOTENT)
    world.perform(effect, Refund(cents=5), key=None)
    world.perform(effect, Refund(cents=-5), key=None, undoing=True)
    step_key = world.owner.token().step_key
    assert world.keys == [f"{step_key}:refund:1", f"{step_key}:undo:refund:1"]


@pytest.mark.parametrize("kind", CALLED)
def test_a_key_with_another_request_is_a_conflict(world, kind):
    effect = declare(world.sink, kind)
    world.perform(effect)
    with pytest.raises(EffectKeyConflictError):
        world.perform(effect, Refund(cents=1))
    with pytest.raises(EffectKeyConflictError):
        world.perform(declare(world.sink, kind, name="charge"))
    assert len(world.sink.calls) == 1


# -- arriving at what an earlier owner has left ------------------------------------------------


@pytest.mark.parametrize("kind", CALLED)
def test_what_is_confirmed_is_never_called_again(world, kind):
    effect = declare(world.sink, kind)
    world.brought_to(effect, EffectStatus.CONFIRMED)
    world.sink.answers = [Receipt(number=2)]
    assert world.perform(effect) == Receipt(number=1)
    assert world.sink.calls == world.sink.probes == []


@pytest.mark.parametrize("kind", REPEATABLE)
@pytest.mark.parametrize("status", UNKNOWN)
def test_where_the_sink_makes_it_harmless_it_is_called_again(world, kind, status):
    effect = declare(world.sink, kind)
    world.brought_to(effect, status)
    assert world.perform(effect) == Receipt(number=1)
    ((call, _),) = world.sink.calls
    assert (call.key, call.number, call.token.epoch) == (KEY, 2, 2)
    assert world.record().status is EffectStatus.CONFIRMED


@pytest.mark.parametrize("status", UNKNOWN)
def test_a_probe_that_found_it_landed_saves_the_call(world, status):
    effect = declare(world.sink, EffectKind.RECONCILABLE)
    world.brought_to(effect, status)
    world.sink.probed = [Landed(Receipt(number=9))]
    assert world.perform(effect) == Receipt(number=9)
    assert world.sink.calls == []
    ((call, request),) = world.sink.probes
    assert (call.key, call.number, request) == (KEY, 1, Refund())
    record = world.record()
    assert (record.status, record.result) == (EffectStatus.CONFIRMED, {"number": 9})
    assert (record.calls, record.epoch) == (1, 2)


@pytest.mark.parametrize("status", UNKNOWN)
def test_a_probe_that_did_not_find_it_allows_the_call(world, status):
    effect = declare(world.sink, EffectKind.RECONCILABLE)
    world.brought_to(effect, status)
    assert world.perform(effect) == Receipt(number=1)
    assert (len(world.sink.probes), len(world.sink.calls)) == (1, 1)
    assert world.record().calls == 2


@pytest.mark.parametrize("status", UNKNOWN)
def test_a_probe_that_cant_tell_parks(world, status):
    effect = declare(world.sink, EffectKind.RECONCILABLE)
    world.brought_to(effect, status)
    world.sink.probed = [Unknown("their index lags")]
    doubt = world.in_doubt(effect)
    assert doubt.retry_in is None
    for told in ("their index lags", KEY, SINK, "1 call(s)"):
        assert told in doubt.reason
    assert world.sink.calls == []
    assert world.record().status is status


@pytest.mark.parametrize("status", UNKNOWN)
def test_a_probe_that_fails_is_tried_again_by_policy(world, status):
    effect = declare(world.sink, EffectKind.RECONCILABLE, retry=THRICE)
    world.brought_to(effect, status)
    world.sink.probed = [ConnectionError("reset")]
    waits = [world.in_doubt(effect, attempt=attempt).retry_in for attempt in (1, 2, 3)]
    assert all(wait is not None for wait in waits[:2])
    assert waits[2] is None
    assert world.sink.calls == []
    assert world.record().status is status


@pytest.mark.parametrize("rubbish", [None, True, Landed, Receipt(number=1), "landed"])
def test_a_probe_that_answers_something_else_parks(world, rubbish):
    effect = declare(world.sink, EffectKind.RECONCILABLE)
    world.brought_to(effect, EffectStatus.INTENT)
    world.sink.probed = [rubbish]
    doubt = world.in_doubt(effect)
    assert doubt.retry_in is None
    assert "must answer Landed, NotLanded or Unknown" in doubt.reason
    assert world.sink.calls == []


@pytest.mark.parametrize("status", UNKNOWN)
def test_at_most_once_parks(world, status):
    effect = declare(world.sink, EffectKind.AT_MOST_ONCE)
    world.brought_to(effect, status)
    world.clock.now += 90
    doubt = world.in_doubt(effect)
    assert doubt.retry_in is None
    for told in (KEY, SINK, "1 call(s)", "0:01:30"):
        assert told in doubt.reason
    assert world.sink.calls == []
    record = world.record()
    assert (record.status, record.calls) == (status, 1)


@pytest.mark.parametrize("kind", CALLED)
@pytest.mark.parametrize("status", NOTHING)
def test_where_nothing_has_landed_it_is_called(world, kind, status):
    effect = declare(world.sink, kind)
    world.brought_to(effect, status)
    assert world.perform(effect) == Receipt(number=1)
    ((call, _),) = world.sink.calls
    assert call.number == 2
    assert world.sink.probes == []


@pytest.mark.parametrize("status", UNKNOWN)
def test_a_kind_that_was_declared_otherwise_at_the_call_parks(world, status):
    """Nobody knows whether the sink had the key of a call that wasn't made with one."""
    world.brought_to(declare(world.sink, EffectKind.AT_MOST_ONCE), status)
    doubt = world.in_doubt(declare(world.sink, EffectKind.IDEMPOTENT))
    assert doubt.retry_in is None
    assert "called as at-most-once, and is declared as idempotent now" in doubt.reason
    assert world.sink.calls == []


# -- another execution's key -------------------------------------------------------------------


@pytest.mark.parametrize("kind", CALLED)
@pytest.mark.parametrize("status", UNKNOWN)
def test_a_key_that_another_execution_uses_is_waited_for_and_not_for_ever(world, kind, status):
    effect = declare(world.sink, kind)
    world.brought_to(effect, status)
    other = started(world.store)
    doubts = [world.in_doubt(effect, worker=other, attempt=attempt) for attempt in range(1, 9)]
    assert all(doubt.retry_in is not None for doubt in doubts[:-1])
    assert doubts[-1].retry_in is None
    assert f"in use by execution {world.owner.execution_id}" in doubts[-1].reason
    assert world.sink.calls == world.sink.probes == []
    assert world.record().calls == 1


@pytest.mark.parametrize("kind", CALLED)
def test_what_another_execution_has_confirmed_is_found(world, kind):
    effect = declare(world.sink, kind)
    world.brought_to(effect, EffectStatus.CONFIRMED)
    assert world.perform(effect, worker=started(world.store)) == Receipt(number=1)
    assert world.sink.calls == []


@pytest.mark.parametrize("status", NOTHING)
def test_what_came_to_nothing_elsewhere_may_be_tried_here(world, status):
    effect = declare(world.sink, EffectKind.AT_MOST_ONCE)
    world.brought_to(effect, status)
    other = started(world.store)
    assert world.perform(effect, worker=other) == Receipt(number=1)
    assert world.record().execution_id == other.execution_id
    # The first one asks again, and finds it done.
    assert world.perform(effect) == Receipt(number=1)
    assert len(world.sink.calls) == 1


# -- what a call comes to ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CALLED)
def test_a_refusal_is_definite(world, kind):
    effect = declare(world.sink, kind)
    world.sink.answers = [CardDeclinedError("no funds")]
    with pytest.raises(EffectRefusedError, match="no funds") as caught:
        world.perform(effect)
    assert caught.value.code == "effect.refused"
    assert caught.value.fields["key"] == KEY
    assert "CardDeclinedError" in caught.value.fields["cause"]["error_type"]
    record = world.record()
    assert record.status is EffectStatus.REFUSED
    assert record.error["message"] == "no funds"


@pytest.mark.parametrize("kind", CALLED)
@pytest.mark.parametrize(
    "problem", [TimeoutError("late"), ConnectionResetError("cut"), KeyError("id")]
)
def test_any_other_error_leaves_the_outcome_unknown(world, kind, problem):
    effect = declare(world.sink, kind, retry=THRICE)
    world.sink.answers = [problem]
    doubt = world.in_doubt(effect)
    assert (doubt.retry_in is None) is (kind is EffectKind.AT_MOST_ONCE)
    record = world.record()
    assert record.status is EffectStatus.IN_DOUBT
    assert type(problem).__name__ in record.error["error_type"]
    assert EventName.EFFECT_IN_DOUBT in names(world.store, world.owner.execution_id)


@pytest.mark.parametrize("kind", [k for k in CALLED if k is not EffectKind.AT_MOST_ONCE])
def test_retries_end_with_the_policy(world, kind):
    effect = declare(world.sink, kind, retry=THRICE)
    world.sink.answers = [TimeoutError("late")]
    waits = [world.in_doubt(effect, attempt=attempt).retry_in for attempt in (1, 2, 3)]
    assert all(wait is not None and wait <= timedelta(seconds=4) for wait in waits[:2])
    assert waits[2] is None
    assert len(world.sink.calls) == 3
    assert {call.key for call, _ in world.sink.calls} == {KEY}


@pytest.mark.parametrize("kind", CALLED)
def test_a_sink_that_knows_a_later_owner_is_believed(world, kind):
    effect = declare(world.sink, kind)
    token = world.owner.token()
    world.sink.answers = [StaleLeaseFenceError(token.execution_id, held=1, current=2)]
    with pytest.raises(StaleLeaseFenceError):
        world.perform(effect)
    assert world.record().status is EffectStatus.INTENT


@pytest.mark.parametrize("kind", CALLED)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("answer", [{"text": "no number"}, None, WRONG_INSIDE])
def test_an_answer_that_cant_be_kept_parks_and_is_not_asked_for_again(world, kind, answer):
    effect = declare(world.sink, kind)
    world.sink.answers = [answer]
    doubt = world.in_doubt(effect)
    assert doubt.retry_in is None
    assert "it has landed" in doubt.reason
    assert "result of effect 'refund'" in doubt.reason
    assert world.record().status is EffectStatus.IN_DOUBT
    assert len(world.sink.calls) == 1


@pytest.mark.parametrize("kind", CALLED)
def test_an_answer_that_is_too_large_parks_and_says_where_to_put_it(world, kind):
    def call(call: EffectCall, request: Refund) -> str:
        world.sink.calls.append((call, request))
        return "x" * 2000

    effect: Any = declare(world.sink, kind)
    effect.function, effect.result_type = call, str
    doubt = world.in_doubt(effect, payload_limit=1500)
    assert doubt.retry_in is None
    for told in ("2002 bytes", "limit is 1500", "object store"):
        assert told in doubt.reason
    assert world.record().status is EffectStatus.IN_DOUBT
    assert len(world.sink.calls) == 1


def test_a_probes_answer_is_held_to_the_same(world):
    effect = declare(world.sink, EffectKind.RECONCILABLE)
    world.brought_to(effect, EffectStatus.INTENT)
    world.sink.probed = [Landed({"text": "no number"})]
    doubt = world.in_doubt(effect)
    assert doubt.retry_in is None
    assert "it has landed" in doubt.reason
    assert world.record().status is EffectStatus.IN_DOUBT
    assert world.sink.calls == []
