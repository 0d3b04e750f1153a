"""What is in doubt is decided by people: at once, contradicting each other, or too late."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import UUID

import pytest

from fencepost import FencepostError, Status
from fencepost.effects import EffectStatus
from fencepost.errors import ExecutionStateError
from fencepost.records import EventName
from tests.acceptance.races import shop
from tests.acceptance.races.bank import Bank
from tests.integration.races.bench import Bench
from tests.support.inline import A_LONG_TIME


def in_doubt(bench: Bench, order: str) -> tuple[Bank, UUID]:
    bank = bench.charged("blind", order)
    bank.arm(order, "lose-answer")
    execution_id = bench.run(shop.refunds["blind"], bench.money(order))
    bench.assert_parked(execution_id, "effect.in-doubt")
    return bank, execution_id


def test_two_people_decide_at_once(bench: Bench, order: str) -> None:
    bank, execution_id = in_doubt(bench, order)
    record = bench.effect(execution_id)
    together = Barrier(2)

    def decide(who: str, landed: bool) -> str:
        together.wait(5)
        try:
            bench.engine.effects.resolve(
                record.sink,
                record.key,
                landed=landed,
                result="re_seen" if landed else None,
                by=who,
                why="looked",
            )
        except ExecutionStateError as late:
            return str(late.fields["resolution"]["by"])
        return who

    with ThreadPoolExecutor(2) as people:
        answers = list(people.map(decide, ["ada", "bob"], [True, False]))
    # One has decided, and the other was told who.
    assert len(set(answers)) == 1
    decided = bench.effect(execution_id)
    assert decided.resolution["by"] == answers[0]
    assert decided.resolution["landed"] is (decided.status is EffectStatus.CONFIRMED)
    (audited,) = bench.events(execution_id, EventName.EFFECT_RESOLVED)
    assert audited.details["by"] == answers[0]
    bench.assert_moved(bank, order, refunds=[1_000])


def test_nobody_decides_while_it_may_be_called(bench: Bench, order: str) -> None:
    bench.charged("dedupes", order)
    execution_id = bench.start(shop.refunds["dedupes"], bench.money(order))
    with bench.killed_at("effect.applied"):
        bench.deliver(execution_id)
    with pytest.raises(FencepostError, match="it may be calling"):
        bench.resolve(execution_id, landed=False, why="guessed")
    assert bench.effect(execution_id).status is EffectStatus.INTENT
    bench.expire_leases()
    bench.drain()
    bench.result(execution_id)


@pytest.mark.parametrize("point", ["shop.landed", "effect.before-conclusion"])
def test_a_person_decides_while_a_zombie_may_still_confirm(
    bench: Bench, order: str, point: str
) -> None:
    bank = bench.charged("blind", order)
    execution_id = bench.start(shop.refunds["blind"], bench.money(order))
    bench.queue.clear()

    def taken_over_and_decided() -> None:
        bench.expire_leases()
        bench.dispatch(bench.row(execution_id))
        bench.drain()
        bench.assert_parked(execution_id, "effect.in-doubt")
        bench.resolve(execution_id, landed=True, result="re_seen", why="on the statement")
        bench.drain()

    with bench.meanwhile(point, taken_over_and_decided):
        bench.deliver(execution_id)
    bench.drain()
    # What the person said stands; the zombie's own answer is on record as refused.
    assert bench.result(execution_id) == "re_seen"
    record = bench.effect(execution_id)
    assert (record.result, record.resolution["by"]) == ("re_seen", "ada")
    (refused,) = bench.refused_writes(execution_id)
    assert refused.sink == "blind"
    bench.assert_moved(bank, order, refunds=[1_000])


def test_a_person_says_no_and_the_zombie_wakes_up_aware(bench: Bench, order: str) -> None:
    """It had announced its call and not made it: its own clock keeps it from making it now."""
    bank = bench.charged("blind", order)
    execution_id = bench.start(shop.refunds["blind"], bench.money(order))
    bench.queue.clear()

    def taken_over_and_decided() -> None:
        bench.expire_leases()
        bench.dispatch(bench.row(execution_id))
        bench.drain()
        bench.resolve(execution_id, landed=False, why="not on the statement")
        bench.drain()
        bench.slept += A_LONG_TIME

    with bench.meanwhile("effect.after-intent", taken_over_and_decided):
        bench.deliver(execution_id)
    bench.slept = 0.0
    bench.drain()
    assert bench.status(execution_id) is Status.SUCCEEDED
    bench.assert_moved(bank, order, refunds=[1_000])
