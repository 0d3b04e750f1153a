"""Whole workers die, or freeze and come back, in the middle of an agent's loop."""

from __future__ import annotations

import pytest

from examples.refund_agent.provider import Mode
from fencepost import Status
from fencepost.records import EventName
from tests.acceptance.agents.conftest import RefundScene

TURNS = 3
REFUND = {
    Mode.DEDUPES: "refund_by_key",
    Mode.FENCES: "refund_fenced",
    Mode.QUERYABLE: "refund_asked_for",
    Mode.BLIND: "refund_blindly",
}
ASK = {"step": "ask_model"}


def test_the_agent_refunds_once(scene: RefundScene) -> None:
    for mode in Mode:
        order_id, handle = scene.complain(mode)
        result = handle.result(30)
        assert result.content.endswith("$40.00 was refunded.")
        assert (result.turns, result.tool_calls) == (TURNS, 2)
        assert scene.refunds(mode, order_id) == [4_000]
        assert scene.model_calls(order_id) == TURNS


@pytest.mark.parametrize(
    ("mode", "point", "match", "extra"),
    [
        (Mode.DEDUPES, "step.after", ASK, 1),
        (Mode.DEDUPES, "commit.before", ASK, 1),
        (Mode.DEDUPES, "commit.after", ASK, 0),
        (Mode.DEDUPES, "effect.after-intent", {}, 0),
        (Mode.DEDUPES, "payment.landed", {}, 0),
        (Mode.FENCES, "effect.applied", {}, 0),
        (Mode.QUERYABLE, "payment.landed", {}, 0),
        (Mode.DEDUPES, "effect.confirmed", {}, 0),
        (Mode.DEDUPES, "commit.before", {"step": REFUND[Mode.DEDUPES]}, 0),
    ],
    ids=str,
)
def test_after_sigkill_nothing_is_repeated(
    scene: RefundScene, mode: Mode, point: str, match: dict[str, str], extra: int
) -> None:
    fault = scene.fleet.arm(point, "kill", **match)
    # The amount is the model's to choose: asked again, it would choose another.
    order_id, handle = scene.complain(mode, late=True)
    fault.victim()
    assert scene.ends(handle) is Status.SUCCEEDED, scene.fleet.logs()
    (cents,) = scene.refunds(mode, order_id)
    assert handle.result(1).content.endswith(f"${cents / 100:.2f} was refunded.")
    assert scene.model_calls(order_id) == TURNS + extra
    assert len(scene.fp.engine.executions.events([handle.execution_id])) >= 2
    scene.assert_verified()


def test_where_nobody_can_know_a_person_is_asked(scene: RefundScene) -> None:
    fault = scene.fleet.arm("payment.landed", "kill")
    order_id, handle = scene.complain(Mode.BLIND)
    fault.victim()
    assert scene.ends(handle) is Status.PARKED
    assert scene.refunds(Mode.BLIND, order_id) == [4_000]
    (doubtful,) = scene.fp.engine.effects.of_execution(handle.execution_id)
    assert doubtful.effect == REFUND[Mode.BLIND]
    assert doubtful.request["amount_cents"] == 4_000
    scene.assert_verified()


@pytest.mark.parametrize(
    ("mode", "point", "match", "refused"),
    [
        (Mode.FENCES, "payment.before-send", {}, ["stale-token"]),
        (Mode.DEDUPES, "payment.before-send", {}, []),
        (Mode.DEDUPES, "effect.applied", {}, []),
        (Mode.DEDUPES, "commit.before", ASK, []),
    ],
    ids=str,
)
def test_a_zombie_of_the_loop_changes_nothing(
    scene: RefundScene, mode: Mode, point: str, match: dict[str, str], refused: list[str]
) -> None:
    fault = scene.fleet.arm(point, "freeze", **match)
    order_id, handle = scene.complain(mode, late=True)
    zombie = fault.victim()
    assert scene.ends(handle) is Status.SUCCEEDED, scene.fleet.logs()
    refunds, result = scene.refunds(mode, order_id), handle.result(1)
    assert len(refunds) == 1
    zombie.thaw()
    scene.zombie_ends(zombie, handle.execution_id)
    assert scene.refunds(mode, order_id) == refunds
    assert scene.refusals(mode, order_id) == refused
    assert handle.result(1) == result
    assert scene.model_calls(order_id) == TURNS + (1 if match == ASK else 0)
    events = scene.fp.engine.executions.events([handle.execution_id])
    assert EventName.LEASE_LOST in [event.name for event in events]
    scene.assert_verified()


def test_a_zombie_cannot_reach_a_provider_that_only_can_be_asked(scene: RefundScene) -> None:
    """Its connection is older than the provider waits for a request."""
    fault = scene.fleet.arm("payment.before-send", "freeze")
    order_id, handle = scene.complain(Mode.QUERYABLE)
    zombie = fault.victim()
    assert scene.ends(handle) is Status.SUCCEEDED, scene.fleet.logs()
    zombie.thaw()
    scene.zombie_ends(zombie, handle.execution_id)
    assert scene.refunds(Mode.QUERYABLE, order_id) == [4_000]
    scene.assert_verified()
