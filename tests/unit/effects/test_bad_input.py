"""What can't be performed is refused before anything is written or called."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.effects import Effect, EffectCall, EffectKind
from fencepost.engine.effects import check_size
from fencepost.errors import EffectOutsideStepError, PayloadError
from tests.unit.effects.support import CALLED, SINK, Receipt, Refund, World, declare


@pytest.fixture
def world():
    return World()


def nothing_happened(world: World) -> None:
    assert world.keys == []
    assert world.sink.calls == []


@pytest.mark.parametrize("request_", [{"cents": "many"}, None, [], Receipt(number=1), 3 + 4j])
def test_a_request_must_be_of_its_type(world, request_):
    effect = declare(world.sink, EffectKind.IDEMPOTENT)
    with pytest.raises(PayloadError, match="request of effect 'refund'") as caught:
        world.performer(effect).perform(effect, request_, "k")
    assert caught.value.code == "payload.invalid"
    nothing_happened(world)


@pytest.mark.parametrize("unstorable", [object(), {1, object()}, "a\x00b", "\ud800", b"\xff\xfe"])
def test_a_request_must_be_storable(world, unstorable):
    def call(call: EffectCall, request: object) -> None:
        raise AssertionError

    effect = Effect(call, kind=EffectKind.IDEMPOTENT, sink=SINK)
    with pytest.raises(PayloadError, match="request of effect 'call'"):
        world.performer(effect).perform(effect, unstorable, "k")
    nothing_happened(world)


def test_a_request_must_not_be_too_large(world):
    def call(call: EffectCall, request: str) -> None:
        raise AssertionError

    effect = Effect(call, kind=EffectKind.IDEMPOTENT, sink=SINK)
    with pytest.raises(PayloadError, match=r"1003 bytes .* the limit is 1000") as caught:
        world.performer(effect, payload_limit=1000).perform(effect, "x" * 1001, "k")
    assert caught.value.fields == {"size": 1003, "limit": 1000}
    nothing_happened(world)
    check_size("x" * 998, "text", 1000)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\x00b", 42])
def test_a_key_must_be_usable(world, key):
    effect = declare(world.sink, EffectKind.IDEMPOTENT)
    with pytest.raises(PayloadError, match="an effect's key is a text of 1 to 255"):
        world.perform(effect, key=key)
    nothing_happened(world)
    world.perform(effect, key="x" * 255)


@pytest.mark.parametrize("resource", ["", "x" * 256, None, 42])
def test_a_resource_must_have_a_name(world, resource):
    effect = declare(world.sink, EffectKind.FENCED, resource=lambda _: resource)
    with pytest.raises(PayloadError, match="resource of effect 'refund'"):
        world.perform(effect)
    nothing_happened(world)


@pytest.mark.parametrize("kind", CALLED)
def test_an_effect_must_be_declared_by_its_step(world, kind):
    effect, other = declare(world.sink, kind), declare(world.sink, kind, name="other")
    for declared in ((), (other,)):
        with pytest.raises(EffectOutsideStepError, match="doesn't declare effect") as caught:
            world.performer(*declared).perform(effect, Refund(), "k")
        assert caught.value.fields["effect"] == "refund"
    nothing_happened(world)


@pytest.mark.parametrize("kind", CALLED)
def test_a_transactional_step_performs_transactional_effects_only(world, kind):
    effect = declare(world.sink, kind)
    session: Any = world.store.session()
    with pytest.raises(EffectOutsideStepError, match="a step that isn't transactional"):
        world.perform(effect, session=session)
    nothing_happened(world)


def test_a_transactional_effect_needs_a_transactional_step(world):
    effect = declare(world.sink, EffectKind.TRANSACTIONAL)
    with pytest.raises(EffectOutsideStepError, match="perform it in a transactional step"):
        world.perform(effect)
    nothing_happened(world)
