"""What a worker without the version passes on: each execution once in a while, and few at once."""

from __future__ import annotations

from uuid import uuid4

from fencepost.engine.offers import AGAIN, AT_ONCE, Offers


def test_the_same_execution_is_passed_on_again_only_after_a_while() -> None:
    offers, execution_id = Offers(), uuid4()
    assert offers.may_offer(execution_id, 100.0)
    assert not offers.may_offer(execution_id, 100.0 + AGAIN - 0.01)
    assert offers.may_offer(execution_id, 100.0 + AGAIN)


def test_no_more_than_so_many_are_passed_on_at_once() -> None:
    offers = Offers()
    now = [offers.may_offer(uuid4(), 100.0 + number / 1_000) for number in range(AT_ONCE + 5)]
    assert now == [True] * AT_ONCE + [False] * 5
    # As the first ones become old, there is room for others.
    later = [offers.may_offer(uuid4(), 100.0 + AGAIN + 0.002) for _ in range(5)]
    assert later == [True] * 3 + [False] * 2
