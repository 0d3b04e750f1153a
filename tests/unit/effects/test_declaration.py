"""A declaration that contradicts itself is refused where it is written."""

# Nobody calls most of these functions.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fencepost import RetryPolicy, Saga, TransactionalContext, step
from fencepost.context import StepContext
from fencepost.effects import (
    Effect,
    EffectCall,
    EffectKind,
    Landed,
    NotLanded,
    Unknown,
    effect,
)
from fencepost.effects.declaration import EFFECT_RETRIES
from fencepost.engine.registry import Registry
from fencepost.errors import (
    EffectDefinitionError,
    EffectOutsideStepError,
    FencepostError,
    SagaDefinitionError,
)
from tests.unit.effects.support import CardDeclinedError, Receipt, Refund, Sink, declare


def refund(call: EffectCall, request: Refund) -> Receipt:
    return Receipt(number=request.order)


def ask(call: EffectCall, request: Refund) -> Landed[Receipt] | NotLanded | Unknown:
    return NotLanded()


def refused(match: str, function: Any = refund, **options: Any) -> EffectDefinitionError:
    options = {"kind": EffectKind.IDEMPOTENT, "sink": "payments", **options}
    with pytest.raises(EffectDefinitionError, match=match) as caught:
        effect(**options)(function)
    assert caught.value.code == "effect.invalid-definition"
    return caught.value


@pytest.mark.parametrize("kind", list(EffectKind))
def test_every_kind_can_be_declared(kind):
    declared = declare(Sink(), kind)
    assert (declared.name, declared.kind, declared.sink) == ("refund", kind, "payments")
    assert (declared.request_type, declared.result_type) == (Refund, Receipt)
    assert declared.retry is EFFECT_RETRIES
    assert repr(declared) == f"<Effect refund: {kind} at payments>"


def test_a_declaration_keeps_what_it_was_told():
    policy = RetryPolicy(attempts=2)

    @effect(
        kind=EffectKind.IDEMPOTENT,
        sink="payments",
        name="pay_back",
        probe=ask,
        resource=lambda request: f"order:{request.order}",
        refused=(CardDeclinedError,),
        retention=timedelta(hours=24),
        in_flight=timedelta(minutes=1),
        retry=policy,
    )
    def repay(call: EffectCall, request: Refund) -> Receipt:
        """Pays back."""
        return Receipt(number=1)

    assert isinstance(repay, Effect)
    assert (repay.name, repay.__doc__, repay.probe) == ("pay_back", "Pays back.", ask)
    assert repay.retention == timedelta(hours=24)
    assert repay.in_flight == timedelta(minutes=1)
    assert repay.retry is policy
    call: Any = None
    assert repay.function(call, Refund()) == Receipt(number=1)


def test_the_kind_may_be_its_name():
    kind: Any = "at-most-once"
    assert effect(kind=kind, sink="x")(refund).kind is EffectKind.AT_MOST_ONCE


def test_an_unknown_kind_is_named_with_those_that_exist():
    refused(
        r"kind='exactly-once'; there are: transactional, fenced, .*at-most-once",
        kind="exactly-once",
    )


def test_a_reconcilable_effect_needs_a_probe():
    error = refused("reconcilable and needs probe=", kind=EffectKind.RECONCILABLE)
    assert error.fields["effect"] == "refund"


def test_a_fenced_effect_needs_a_fence():
    refused("fenced and needs fence=", kind=EffectKind.FENCED)
    refused("without advance", kind=EffectKind.FENCED, fence=object())


@pytest.mark.parametrize("kind", [k for k in EffectKind if k is not EffectKind.FENCED])
def test_only_a_fenced_effect_has_a_fence(kind):
    needed = {"probe": ask} if kind is EffectKind.RECONCILABLE else {}
    refused("only a fenced effect has a fence", kind=kind, fence=Sink(), **needed)


@pytest.mark.parametrize("kind", [k for k in EffectKind if k is not EffectKind.IDEMPOTENT])
def test_only_keys_have_a_retention(kind):
    with pytest.raises(EffectDefinitionError, match="only idempotency keys have a retention"):
        declare(Sink(), kind, retention=timedelta(days=1))


def test_durations_must_make_sense():
    refused("retention that isn't positive", retention=timedelta(0))
    refused("negative in_flight", in_flight=timedelta(seconds=-1))


@pytest.mark.parametrize(
    "kind", [EffectKind.FENCED, EffectKind.AT_MOST_ONCE, EffectKind.TRANSACTIONAL]
)
def test_what_would_never_be_used_is_refused(kind):
    with pytest.raises(EffectDefinitionError, match="in_flight"):
        declare(Sink(), kind, in_flight=timedelta(seconds=1))
    with pytest.raises(EffectDefinitionError, match="probe"):
        declare(Sink(), kind, probe=ask)


def test_a_transactional_effect_is_not_refused_by_anyone():
    refused("nothing to probe or refuse", kind=EffectKind.TRANSACTIONAL, refused=(KeyError,))


@pytest.mark.parametrize("error", [Exception, OSError, ConnectionError, TimeoutError])
def test_a_time_out_is_no_refusal(error):
    refused("nobody knows what has landed", refused=(CardDeclinedError, error))


@pytest.mark.parametrize("error", [ConnectionRefusedError, PermissionError, ValueError])
def test_what_says_no_may_be_a_refusal(error):
    declared = effect(kind=EffectKind.IDEMPOTENT, sink="x", refused=(error,))(refund)
    assert declared.refused == (error,)


def test_refusals_are_exception_classes():
    refused("isn't an exception class", refused=("declined",))
    refused("isn't an exception class", refused=(KeyboardInterrupt,))
    refused("isn't a tuple", refused=CardDeclinedError)


def test_the_function_takes_a_call_and_a_request():
    def no_request(call: EffectCall) -> Receipt: ...
    def no_types(call, request): ...
    def no_result(call: EffectCall, request: Refund): ...
    def three(call: EffectCall, request: Refund, more: int) -> Receipt: ...
    def swapped(request: Refund, call: EffectCall) -> Receipt: ...
    def a_step(ctx: StepContext, request: Refund) -> Receipt: ...

    for function in (no_request, no_types, no_result, three, swapped, a_step):
        error = refused(r"must be `\(call: EffectCall, request: T\) -> R`", function)
        assert error.fields["effect"] == function.__name__


def test_annotations_must_be_known():
    def refund(call: EffectCall, request: Unheard) -> Receipt: ...  # type: ignore[name-defined] # noqa: F821

    refused("annotation that can't be resolved", refund)


def test_types_must_have_a_schema():
    class Opaque:
        pass

    def opaque(call: EffectCall, request: Refund) -> Receipt: ...

    opaque.__annotations__ = {"call": EffectCall, "request": Refund, "return": Opaque}
    refused("type without a schema: Opaque", opaque)


def test_a_probe_takes_what_the_effect_takes():
    def probe(request: Refund) -> NotLanded: ...

    refused("probe that isn't", probe=probe)


@pytest.mark.parametrize("name", ["", "pay:back", "pay back", "x" * 101])
def test_names_can_stand_in_keys(name):
    with pytest.raises(SagaDefinitionError, match="can't name"):
        effect(kind=EffectKind.IDEMPOTENT, sink="payments", name=name or None)(
            refund if name else type("nameless", (), {"__call__": refund})()
        )
    with pytest.raises(SagaDefinitionError, match="can't name"):
        effect(kind=EffectKind.IDEMPOTENT, sink=name)(refund)


def test_a_sinks_name_fits_the_audit_trail():
    refused("longer than 64", sink="x" * 65)
    assert effect(kind=EffectKind.IDEMPOTENT, sink="x" * 64)(refund).sink == "x" * 64


def test_a_direct_call_is_refused_and_says_what_to_do():
    declared = declare(Sink(), EffectKind.IDEMPOTENT)
    with pytest.raises(EffectOutsideStepError, match=r"use ctx\.perform") as caught:
        declared(Refund())
    assert caught.value.code == "effect.outside-step"


# -- in steps and sagas ------------------------------------------------------------------------


def test_a_plain_step_has_no_transactional_effects():
    booked = declare(Sink(), EffectKind.TRANSACTIONAL)

    @step(effects=[booked])
    def pay(ctx: StepContext, request: Refund) -> Receipt: ...

    refused_for("effect.wrong-step", Saga("refunds", input=Refund).then(pay))


@pytest.mark.parametrize("kind", [k for k in EffectKind if k is not EffectKind.TRANSACTIONAL])
def test_a_transactional_step_has_no_other_effects(kind):
    declared = declare(Sink(), kind)

    @step(transactional=True, effects=[declared])
    def pay(ctx: TransactionalContext, request: Refund) -> Receipt: ...

    refused_for("effect.wrong-step", Saga("refunds", input=Refund).then(pay))


def refused_for(code: str, saga: Saga[Any, Any]) -> None:
    with pytest.raises(SagaDefinitionError, match=code) as caught:
        Registry([saga])
    assert [finding["code"] for finding in caught.value.fields["findings"]] == [code]


def test_a_step_declares_effects_and_not_functions():
    function: Any = refund
    with pytest.raises(SagaDefinitionError, match="takes what @effect has declared"):

        @step(effects=[function])
        def pay(ctx: StepContext, request: Refund) -> Receipt: ...


def test_two_effects_of_one_name_are_refused():
    """A takeover finds the sink whose fence it raises by the effect's name."""
    one = declare(Sink(), EffectKind.FENCED, sink="here")
    other = declare(Sink(), EffectKind.FENCED, sink="there")

    @step(effects=[one])
    def pay(ctx: StepContext, request: Refund) -> Refund: ...

    @step(effects=[other])
    def pay_again(ctx: StepContext, request: Refund) -> Receipt: ...

    registry = Registry([Saga("one", input=Refund).then(pay)])
    registry.add(Saga("same", input=Refund).then(pay))
    with pytest.raises(FencepostError, match="another effect named 'refund'") as caught:
        registry.add(Saga("other", input=Refund).then(pay_again))
    assert caught.value.code == "saga.invalid-definition"
    assert registry.effect("refund") is one
