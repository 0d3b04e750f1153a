"""How often limited steps begin."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from fencepost.limits import LATE, Limit, Usage
from tests.conformance.line import (
    GPU,
    MOMENT,
    SIX,
    SPACING,
    again,
    ask,
    fails_an_attempt,
    hand_back,
    in_line,
    is_turned_back,
    may_begin,
    served,
    several,
    wait_of,
)
from tests.conformance.support import LATER, NOW, at_once, started


class Rates:
    def test_starts_are_given_evenly(self, store, limits, starts):
        workers = several(store, 13)
        waits = [wait_of(limits, worker, SIX) for worker in workers]
        assert waits[0] == NOW
        assert waits == sorted(waits)
        given = starts()
        assert {later - earlier for earlier, later in pairwise(given)} == {SPACING}
        for first in given:
            assert sum(first <= start < first + SIX.per for start in given) <= 6

    def test_a_rate_that_does_not_divide_its_time_is_kept_too(self, store, limits, starts):
        limit = Limit(name=GPU, rate=7, per=timedelta(hours=1, milliseconds=1))
        for worker in several(store, 8):
            ask(limits, worker, limit)
        first, *_, eighth = starts()
        assert limit.per <= eighth - first < limit.per + timedelta(milliseconds=8)

    def test_who_has_a_start_is_told_it_again(self, store, limits, starts, pass_time):
        _, worker = in_line(store, limits, 2, SIX)
        given = starts()
        pass_time(SPACING / 2)
        wait = wait_of(limits, worker, SIX)
        assert NOW < wait <= SPACING / 2
        assert len(starts()) == len(given) == 2
        pass_time(SPACING / 2)
        assert may_begin(limits, again(worker), SIX)

    def test_going_on_after_a_takeover_is_no_new_start(self, store, limits, starts, pass_time):
        holder = started(store)
        assert may_begin(limits, holder, SIX)
        pass_time(LATE + SPACING)
        assert may_begin(limits, again(holder), SIX)
        assert may_begin(limits, started(store), SIX)

    def test_another_attempt_is_a_new_start(self, store, limits):
        holder = started(store)
        assert may_begin(limits, holder, SIX)
        fails_an_attempt(holder)
        assert NOW < wait_of(limits, again(holder), SIX) <= SPACING

    def test_what_has_ended_has_used_its_start(self, store, limits):
        holder = started(store)
        assert may_begin(limits, holder, SIX)
        holder.commit()
        assert served(limits, SIX) == []
        assert NOW < wait_of(limits, started(store), SIX) <= SPACING

    def test_idleness_is_not_saved_up(self, store, limits, pass_time):
        assert may_begin(limits, started(store), SIX)
        pass_time(100 * SPACING)
        assert may_begin(limits, started(store), SIX)
        assert wait_of(limits, started(store), SIX) > SPACING / 2

    def test_starts_that_nobody_will_use_are_given_to_the_next(self, store, limits, starts):
        _, second, third, *others = in_line(store, limits, 10, SIX)
        given = starts()
        for worker in (third, *others):
            is_turned_back(worker)
        ask(limits, started(store), SIX)
        assert starts() == given[:3]
        is_turned_back(second)
        ask(limits, started(store), SIX)
        assert starts() == [given[0], given[2], given[3]], "another has been told a later one"

    def test_what_an_outage_has_held_up_does_not_begin_at_once(
        self, store, limits, starts, pass_time
    ):
        workers = in_line(store, limits, 5, SIX)
        assert may_begin(limits, workers[0], SIX)
        pass_time(6 * SPACING + LATE)
        waits = [wait_of(limits, worker, SIX) for worker in workers[1:]]
        assert waits[0] == NOW
        assert waits == sorted(waits)
        given = starts()[1:]
        assert {later - earlier for earlier, later in pairwise(given)} == {SPACING}

    def test_a_little_late_is_early_enough(self, store, limits, starts, pass_time):
        _, worker = in_line(store, limits, 2, SIX)
        pass_time(SPACING + LATE / 2)
        before = starts()
        assert may_begin(limits, worker, SIX)
        assert starts() == before

    def test_places_and_rates_hold_together(self, store, limits, pass_time):
        both = Limit(name=GPU, concurrency=2, rate=6, per=timedelta(minutes=1))
        first, second, third = several(store, 3)
        assert may_begin(limits, first, both)
        assert NOW < wait_of(limits, second, both) <= SPACING
        assert ask(limits, third, both) is None
        first.commit()
        assert served(limits, both) == []
        assert SPACING < wait_of(limits, third, both) <= 2 * SPACING

    def test_who_is_given_a_later_start_is_due_then(self, store, limits, pass_time):
        both = Limit(name=GPU, concurrency=1, rate=6, per=timedelta(minutes=1))
        holder, waiter = in_line(store, limits, 2, both)
        hand_back(waiter)
        holder.commit()
        assert served(limits, both) == [], "nobody is to be dispatched before"
        assert limits.usage() == [Usage(GPU, running=1, waiting=0)]
        pass_time(SPACING - MOMENT)
        assert store.claim_due(10, LATER) == []
        pass_time(MOMENT)
        assert store.claim_due(10, LATER) == [waiter.execution]

    def test_starts_that_are_asked_for_at_once_are_given_evenly(self, store, limits, starts):
        workers = several(store, 16)
        calls = [lambda worker=worker: ask(limits, worker, SIX) for worker in workers]
        waits = at_once(calls)
        assert waits.count(NOW) == 1
        given = starts()
        assert len(given) == 16
        assert {later - earlier for earlier, later in pairwise(given)} == {SPACING}
