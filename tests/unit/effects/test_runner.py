"""What the engine makes of effects: retries, parking, people's decisions, compensations."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost import (
    ErrorBranch,
    Failure,
    NeedsPerson,
    RetryPolicy,
    Saga,
    Status,
    StepContext,
    step,
)
from fencepost.effects import EffectCall, EffectKind, EffectStatus, Landed, NotLanded
from fencepost.engine.effects import InDoubt
from fencepost.errors import (
    EffectRefusedError,
    FencepostError,
    LeaseDeadlineError,
)
from fencepost.records import EventName
from tests.unit.effects.fleet import Fleet
from tests.unit.effects.sagas import CRASHES, RETRIED, Charges, Refunds, fail
from tests.unit.effects.support import (
    CALLED,
    THRICE,
    CardDeclinedError,
    Receipt,
    Refund,
    Sink,
    declare,
)

# -- doubt -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RETRIED)
def test_doubt_is_retried_with_back_off_under_one_key(kind):
    world = Refunds(kind, retry=THRICE)
    world.sink.answers = [TimeoutError("late"), ConnectionResetError("cut"), Receipt(number=5)]
    execution_id = world.run()
    assert world.fleet.status(execution_id) == (Status.SUCCEEDED, EffectStatus.CONFIRMED)
    assert world.fleet.row(execution_id).result == "receipt 5"
    failed = world.fleet.events(execution_id, EventName.ATTEMPT_FAILED)
    assert [event.details["attempt"] for event in failed] == [1, 2]
    assert {event.details["error"]["code"] for event in failed} == {"effect.in-doubt"}
    assert all(0 <= event.details["retry_in"] <= 4 for event in failed)
    assert len({call.key for call, _ in world.sink.calls}) == 1
    assert [call.number for call, _ in world.sink.calls] == [1, 2, 3]
    # Each call is another owner's, so that a late one can be told from the next.
    assert [call.token.epoch for call, _ in world.sink.calls] == [1, 2, 3]


@pytest.mark.parametrize("kind", RETRIED)
def test_doubt_parks_when_the_policy_is_exhausted(kind):
    world = Refunds(kind, retry=THRICE)
    world.sink.answers = [TimeoutError("late")]
    execution_id = world.run()
    assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.IN_DOUBT)
    row = world.fleet.row(execution_id)
    assert row.error["code"] == "effect.in-doubt"
    assert row.error["details"]["sink"] == "payments"
    assert "late" in (row.parked_reason or "")
    assert len(world.sink.calls) == 3
    assert world.done == ["reserve"]
    (listed,) = world.fleet.effects.in_doubt(10)
    assert listed.execution_id == execution_id


def test_at_most_once_parks_at_once():
    world = Refunds(EffectKind.AT_MOST_ONCE)
    world.sink.answers = [TimeoutError("late")]
    execution_id = world.run()
    assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.IN_DOUBT)
    assert len(world.sink.calls) == 1
    assert not world.fleet.events(execution_id, EventName.ATTEMPT_FAILED)


@pytest.mark.parametrize("kind", CALLED)
def test_going_on_without_a_decision_guesses_nothing(kind):
    world = Refunds(kind, retry=RetryPolicy(attempts=1, retry_on=(Exception,)))
    world.sink.answers = [TimeoutError("late"), Receipt(number=2)]
    world.sink.probed = [Landed(Receipt(number=3))]
    execution_id = world.run()
    assert world.fleet.row(execution_id).status is Status.PARKED
    world.fleet.go_on(execution_id)
    if kind is EffectKind.AT_MOST_ONCE:
        assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.IN_DOUBT)
        assert len(world.sink.calls) == 1
    else:
        number = 3 if kind is EffectKind.RECONCILABLE else 2
        assert world.fleet.row(execution_id).result == f"receipt {number}"


@pytest.mark.parametrize("kind", CALLED)
def test_what_a_person_found_landed_is_used(kind):
    world = Refunds(kind, retry=RetryPolicy(attempts=1, retry_on=(Exception,)))
    world.sink.answers = [TimeoutError("late")]
    execution_id = world.run()
    world.fleet.resolve(execution_id, landed=True, result={"number": 77})
    world.fleet.go_on(execution_id)
    assert world.fleet.status(execution_id) == (Status.SUCCEEDED, EffectStatus.CONFIRMED)
    assert world.fleet.row(execution_id).result == "receipt 77"
    assert (len(world.sink.calls), len(world.sink.probes)) == (1, 0)


@pytest.mark.parametrize("kind", CALLED)
def test_what_a_person_found_not_landed_is_called_again(kind):
    world = Refunds(kind, retry=RetryPolicy(attempts=1, retry_on=(Exception,)))
    world.sink.answers = [TimeoutError("late"), Receipt(number=2)]
    execution_id = world.run()
    world.fleet.resolve(execution_id, landed=False)
    world.fleet.go_on(execution_id)
    assert world.fleet.status(execution_id) == (Status.SUCCEEDED, EffectStatus.CONFIRMED)
    assert world.fleet.row(execution_id).result == "receipt 2"
    assert [call.number for call, _ in world.sink.calls] == [1, 2]


def test_a_persons_wrong_result_parks_again_instead_of_failing_the_saga():
    world = Refunds(EffectKind.AT_MOST_ONCE)
    world.sink.answers = [TimeoutError("late")]
    execution_id = world.run()
    world.fleet.resolve(execution_id, landed=True, result={"nummer": 77})
    world.fleet.go_on(execution_id)
    assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.IN_DOUBT)
    assert "ada" in (world.fleet.row(execution_id).parked_reason or "")
    world.fleet.resolve(execution_id, landed=True, result={"number": 77})
    world.fleet.go_on(execution_id)
    assert world.fleet.row(execution_id).result == "receipt 77"
    assert len(world.sink.calls) == 1


# -- a step doesn't end over an effect that nobody knows about -----------------------------------


@pytest.mark.parametrize("kind", CALLED)
def test_a_body_cant_swallow_doubt(kind):
    world = Refunds(kind)

    def pay(ctx: StepContext, request: Refund) -> Receipt:
        try:
            return ctx.perform(world.effect, request)
        except BaseException:  # noqa: BLE001 - what bodies do
            return Receipt(number=0)

    world.pay = pay  # type: ignore[method-assign]
    world.sink.answers = [TimeoutError("late")]
    execution_id = world.run()
    assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.IN_DOUBT)
    row = world.fleet.row(execution_id)
    assert "has returned, and left in doubt: refund" in (row.parked_reason or "")
    assert row.error["code"] == "effect.in-doubt"
    world.fleet.resolve(execution_id, landed=True, result={"number": 7})
    world.fleet.go_on(execution_id)
    assert world.fleet.row(execution_id).result == "receipt 7"


def test_a_body_cant_swallow_a_passed_deadline():
    world = Refunds(EffectKind.IDEMPOTENT)

    def pay(ctx: StepContext, request: Refund) -> Receipt:
        try:
            return ctx.perform(world.effect, request)
        except LeaseDeadlineError:
            return Receipt(number=0)

    def stall() -> None:
        world.fleet.clock.now += 60

    world.pay = pay  # type: ignore[method-assign]
    execution_id = world.fleet.start(world.saga, Refund())
    world.fleet.once_at("effect.after-intent", stall, lambda: world.fleet.deliver(execution_id))
    assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.INTENT)
    assert world.sink.calls == []


@pytest.mark.parametrize("landed", [True, False])
def test_an_attempt_that_does_not_come_to_an_announced_effect_parks(landed):
    world = Refunds(EffectKind.IDEMPOTENT)

    def other_way(ctx: StepContext, request: Refund) -> Receipt:
        return Receipt(number=0)

    execution_id = world.fleet.start(world.saga, Refund())
    world.fleet.killed_at("effect.after-intent", lambda: world.fleet.deliver(execution_id))
    world.pay = other_way  # type: ignore[method-assign]
    world.fleet.settle(execution_id)
    assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.INTENT)
    world.fleet.resolve(execution_id, landed=landed, result={"number": 7})
    world.fleet.go_on(execution_id)
    assert world.fleet.row(execution_id).result == "receipt 0"
    assert world.sink.calls == []


def test_a_step_whose_effects_are_decided_asks_nobody():
    world = Refunds(EffectKind.IDEMPOTENT)
    asked: list[Any] = []
    real = world.fleet.effects.of_execution

    def of_execution(execution_id: Any) -> Any:
        asked.append(execution_id)
        return real(execution_id)

    world.fleet.effects.of_execution = of_execution  # type: ignore[method-assign]
    world.run()
    assert asked == []


# -- failing for good -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CALLED)
def test_a_step_that_fails_after_its_effect_landed_parks_and_undoes_nothing(kind):
    world = Refunds(kind)
    world.after = fail(ValueError("no paper in the printer"))
    execution_id = world.run()
    assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.CONFIRMED)
    row = world.fleet.row(execution_id)
    assert row.error["code"] == "effect.landed-in-failed-step"
    assert "no paper" in (row.parked_reason or "")
    assert "refund" in (row.parked_reason or "")
    assert world.done == ["reserve"]
    assert world.fleet.steps(execution_id) == [("start", "start"), ("step", "reserve")]
    world.after = lambda: None
    world.fleet.go_on(execution_id)
    assert world.fleet.row(execution_id).status is Status.SUCCEEDED
    assert len(world.sink.calls) == 1


@pytest.mark.parametrize("kind", RETRIED)
def test_a_step_that_fails_where_an_earlier_attempts_effect_is_in_doubt_parks(kind):
    world = Refunds(kind, retry=THRICE)
    world.sink.answers = [TimeoutError("late")]
    execution_id = world.fleet.start(world.saga, Refund())
    world.fleet.deliver(execution_id)
    world.before = fail(ValueError("no paper in the printer"))
    world.fleet.settle(execution_id)
    assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.IN_DOUBT)
    assert world.fleet.row(execution_id).error["code"] == "effect.landed-in-failed-step"
    assert world.done == ["reserve"]


@pytest.mark.parametrize("kind", CALLED)
def test_a_refusal_fails_the_step_and_what_was_done_is_undone(kind):
    world = Refunds(kind)
    world.sink.answers = [CardDeclinedError("no funds")]
    execution_id = world.run()
    assert world.fleet.status(execution_id) == (Status.COMPENSATED, EffectStatus.REFUSED)
    assert world.fleet.row(execution_id).error["code"] == "effect.refused"
    assert world.done == ["reserve", "release"]
    assert len(world.sink.calls) == 1


@pytest.mark.parametrize("kind", CALLED)
def test_a_step_may_live_with_a_refusal(kind):
    world = Refunds(kind)
    world.sink.answers = [CardDeclinedError("no funds")]

    def pay(ctx: StepContext, request: Refund) -> Receipt:
        with pytest.raises(EffectRefusedError):
            ctx.perform(world.effect, request)
        return Receipt(number=0)

    world.pay = pay  # type: ignore[method-assign]
    assert world.fleet.status(world.run()) == (Status.SUCCEEDED, EffectStatus.REFUSED)


def test_a_retry_of_the_step_finds_what_has_landed():
    world = Refunds(EffectKind.AT_MOST_ONCE)
    problems: list[Exception] = [ConnectionError("printer")]

    def after() -> None:
        if problems:
            raise problems.pop()

    world.after = after
    execution_id = world.run()
    assert world.fleet.status(execution_id) == (Status.SUCCEEDED, EffectStatus.CONFIRMED)
    assert len(world.sink.calls) == 1


def test_a_body_that_changes_its_mind_about_a_request_parks():
    """The first attempt paid 999 cents, and the second wants to pay 5 under the same key."""
    world = Refunds(EffectKind.IDEMPOTENT)
    cents = [999, 5]

    def pay(ctx: StepContext, request: Refund) -> Receipt:
        receipt = ctx.perform(world.effect, Refund(cents=cents.pop(0)))
        if cents:
            raise ConnectionError("printer")
        return receipt

    world.pay = pay  # type: ignore[method-assign]
    execution_id = world.run()
    assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.CONFIRMED)
    assert "with another request" in (world.fleet.row(execution_id).parked_reason or "")
    assert len(world.sink.calls) == 1


def test_a_person_asked_for_by_the_body_is_asked():
    world = Refunds(EffectKind.IDEMPOTENT)
    world.after = fail(NeedsPerson("is this right?"))
    execution_id = world.run()
    assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.CONFIRMED)
    assert world.fleet.row(execution_id).parked_reason == "is this right?"


# -- killed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", CRASHES)
@pytest.mark.parametrize("kind", CALLED)
def test_wherever_a_worker_is_killed_the_sink_sees_it_once(kind, point):
    world = Refunds(kind)
    applied: dict[str, Receipt] = {}

    def at_the_sink(call: EffectCall, _request: Refund) -> Receipt:
        """Dedupes by key where the kind claims so; the others' second call would be counted."""
        dedupes = kind in (EffectKind.FENCED, EffectKind.IDEMPOTENT)
        key = call.key if dedupes else f"{call.key} call {call.number}"
        return applied.setdefault(key, Receipt(number=1))

    world.effect.function = at_the_sink
    world.effect.probe = lambda *_: Landed(next(iter(applied.values()))) if applied else NotLanded()
    execution_id = world.fleet.start(world.saga, Refund())
    at = {"step": "pay"} if point == "step.after" else {}
    world.fleet.killed_at(point, lambda: world.fleet.deliver(execution_id), **at)
    world.fleet.settle(execution_id)
    unknown = point in CRASHES[1:4]
    if kind is EffectKind.AT_MOST_ONCE and unknown:
        assert world.fleet.status(execution_id) == (Status.PARKED, EffectStatus.INTENT)
        assert len(applied) == (0 if point == "effect.after-intent" else 1)
        world.fleet.resolve(execution_id, landed=bool(applied), result={"number": 1})
        world.fleet.go_on(execution_id)
    assert world.fleet.status(execution_id) == (Status.SUCCEEDED, EffectStatus.CONFIRMED)
    assert world.fleet.row(execution_id).result == "receipt 1"
    assert len(applied) == 1


# -- compensations -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CALLED)
def test_a_compensation_performs_effects_of_its_own(kind):
    world = Charges(kind)
    execution_id = world.fleet.run(world.saga, Refund())
    assert world.fleet.row(execution_id).status is Status.COMPENSATED
    assert world.requests() == [999, -999]
    keys = [call.key for call, _ in world.sink.calls]
    step_key = f"{execution_id}:charge:1"
    assert keys == [f"{step_key}:move_money:1", f"{step_key}:undo:move_money:1"]


@pytest.mark.parametrize("point", CRASHES[:-1])
@pytest.mark.parametrize("kind", RETRIED)
def test_a_compensation_that_is_killed_pays_back_once(kind, point):
    world = Charges(kind)
    applied: dict[str, int] = {}

    def at_the_sink(call: EffectCall, request: Refund) -> Receipt:
        key = call.key if kind is not EffectKind.RECONCILABLE else f"{call.key} {call.number}"
        applied.setdefault(key, request.cents)
        return Receipt(number=1)

    def probe(call: EffectCall, _request: Refund) -> Any:
        landed = any(key.startswith(call.key) for key in applied)
        return Landed(Receipt(number=1)) if landed else NotLanded()

    world.move.function, world.move.probe = at_the_sink, probe
    execution_id = world.fleet.start(world.saga, Refund())
    key = f"{execution_id}:charge:1:undo:move_money:1"
    world.fleet.killed_at(point, lambda: world.fleet.deliver(execution_id), key=key)
    world.fleet.settle(execution_id)
    assert world.fleet.row(execution_id).status is Status.COMPENSATED
    assert list(applied.values()) == [999, -999]


def test_a_compensation_in_doubt_parks_and_goes_on_when_it_is_decided():
    world = Charges(EffectKind.AT_MOST_ONCE)
    world.sink.answers = [Receipt(number=1), TimeoutError("late")]
    execution_id = world.fleet.run(world.saga, Refund())
    assert world.fleet.row(execution_id).status is Status.PARKED
    world.fleet.resolve(execution_id, landed=True, result={"number": 2})
    world.fleet.go_on(execution_id)
    assert world.fleet.row(execution_id).status is Status.COMPENSATED
    assert world.requests() == [999, -999]


def test_a_failed_step_of_an_error_branch_parks_too():
    sink = Sink()
    mail = declare(sink, EffectKind.IDEMPOTENT, name="mail")

    @step
    def ship(request: Refund) -> str:
        raise ValueError("out of stock")

    @step(effects=[mail])
    def apologise(ctx: StepContext, failure: Failure[Refund]) -> str:
        ctx.perform(mail, failure.input)
        raise KeyError("template")

    branch = ErrorBranch[Refund, str](ValueError).finish(apologise)
    saga = Saga("orders", input=Refund).then(ship).on_error(branch)
    fleet = Fleet(saga)
    execution_id = fleet.run(saga, Refund())
    assert fleet.status(execution_id) == (Status.PARKED, EffectStatus.CONFIRMED)
    assert fleet.row(execution_id).error["code"] == "effect.landed-in-failed-step"


def test_in_doubt_is_no_error_of_the_library():
    """Nothing that a body may reasonably catch catches it."""
    assert not issubclass(InDoubt, Exception)
    assert not issubclass(InDoubt, FencepostError)
