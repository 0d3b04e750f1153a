"""A caller that is frozen with its request in its hand, and thaws at the worst moment."""

from __future__ import annotations

import pytest

from fencepost import EffectKind, Status
from fencepost.records import EventName
from tests.acceptance.effects.world import World


@pytest.mark.parametrize("point", ["fence.advanced", "step.before"])
def test_it_is_refused_between_the_takeover_and_the_new_owners_first_write(
    world: World, point: str
) -> None:
    """The fence was raised at the takeover, so nobody has to have written for that."""
    world.await_workers()
    kind, reference = EffectKind.FENCED, f"between-{point}"
    execution_id = world.id_of(kind, reference)
    frozen = world.fleet.arm("fenced.sending", "freeze", reference=reference)
    handle = world.start(kind, reference)
    zombie = frozen.victim()
    match = {"step": "fenced"} if point == "step.before" else {}
    waiting = world.fleet.arm(point, "pause", **match)
    waiting.victim()
    assert world.provider.mark(str(execution_id)) == 2
    zombie.thaw()
    key = f"{execution_id}:fenced:1:pay_fenced:1"
    world.fleet.wait_for(lambda: world.provider.requests(key), 10, "the zombie's request")
    # All that the provider was asked so far is the zombie's, and it is refused.
    assert world.provider.requests(key) == [(1, 412)]
    assert world.paid(kind, reference) == []
    world.await_dropped(zombie, execution_id)
    waiting.go()
    assert world.wait(handle).status is Status.SUCCEEDED, world.story(execution_id)
    assert len(world.paid(kind, reference)) == 1
    assert world.provider.requests(key) == [(1, 412), (2, 200)]
    (raised,) = world.events(execution_id, EventName.FENCE_RAISED)
    assert (raised.epoch, raised.sink) == (2, "pay-fenced")
    (refused,) = world.events(execution_id, EventName.ZOMBIE_WRITE_REJECTED)
    assert (refused.epoch, refused.current_epoch, refused.sink) == (1, 2, "pay-fenced")
    assert refused.details["key"] == key
    assert world.verify(execution_id, settle=5.0).ok


@pytest.mark.parametrize(
    "kind", [EffectKind.FENCED, EffectKind.IDEMPOTENT, EffectKind.RECONCILABLE]
)
def test_its_request_comes_last_and_pays_nothing(world: World, kind: EffectKind) -> None:
    world.await_workers()
    mode = {EffectKind.IDEMPOTENT: "keyed", EffectKind.RECONCILABLE: "queryable"}.get(
        kind, "fenced"
    )
    reference = f"last-{kind}"
    execution_id = world.id_of(kind, reference)
    frozen = world.fleet.arm(f"{mode}.sending", "freeze", reference=reference)
    handle = world.start(kind, reference, careful=mode == "queryable")
    zombie = frozen.victim()
    assert world.wait(handle).status is Status.SUCCEEDED, world.story(execution_id)
    paid = world.paid(kind, reference)
    assert len(paid) == 1
    zombie.thaw()
    world.await_dropped(zombie, execution_id)
    assert world.paid(kind, reference) == paid
    effect = world.effect(execution_id)
    assert effect is not None
    statuses = [status for _, status in world.provider.requests(effect.key)]
    # The sink's fence, the sink's key, or the caller's own last look at its deadline.
    assert statuses == {"fenced": [200, 412], "keyed": [200, 200], "queryable": [200]}[mode]
    assert world.verify(execution_id, settle=5.0).ok


@pytest.mark.parametrize("careful", [True, False])
def test_at_most_once_stays_parked_and_the_sink_knows(world: World, careful: bool) -> None:
    """A careful effect sends nothing late. Another one's late call lands, once, and is found."""
    world.await_workers()
    kind, reference = EffectKind.AT_MOST_ONCE, f"blind-{careful}"
    execution_id = world.id_of(kind, reference)
    frozen = world.fleet.arm("blind.sending", "freeze", reference=reference)
    handle = world.start(kind, reference, careful=careful)
    zombie = frozen.victim()
    assert world.wait(handle).status is Status.PARKED
    zombie.thaw()
    world.await_dropped(zombie, execution_id)
    effect = world.effect(execution_id)
    assert effect is not None
    assert (effect.status, effect.calls) == ("intent", 1)
    assert len(world.paid(kind, reference)) == (0 if careful else 1)
    assert world.row(execution_id).status is Status.PARKED
    world.decide(execution_id)
    assert world.wait(handle).status is Status.SUCCEEDED
    assert len(world.paid(kind, reference)) == 1
