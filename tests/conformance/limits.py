"""What every limit store must do: subclass it and give the fixtures."""

from __future__ import annotations

from datetime import timedelta
from queue import Empty, SimpleQueue
from threading import Barrier, Condition

import pytest

from fencepost.limits import LATE, PRESENT, Limit, Usage
from fencepost.records import Status
from tests.conformance.line import (
    ENDS,
    GPU,
    MOMENT,
    ONE,
    SIX,
    TWO,
    again,
    ask,
    begins_to_undo,
    fails_an_attempt,
    hand_back,
    ids,
    in_line,
    is_parked,
    is_turned_back,
    may_begin,
    served,
    several,
)
from tests.conformance.rates import Rates
from tests.conformance.support import (
    LATER,
    NOW,
    Worker,
    at_once,
    eventually,
    new_execution,
    started,
)


class LimitStoreConformance(Rates):
    """The whole contract.

    Fixtures to give: `store`, the executions; `limits`, on the same database; `pass_time`, which
    makes the store believe that some time has passed; `starts`, which tells the starts that are
    given for `gpu`, in order.
    """

    # -- places ------------------------------------------------------------------------------

    def test_as_many_as_the_limit_says_run_at_once(self, store, limits):
        workers = several(store, 3)
        assert [ask(limits, worker, TWO) for worker in workers] == [NOW, NOW, None]
        assert limits.usage() == [Usage(GPU, running=2, waiting=1)]

    def test_who_runs_and_asks_again_has_one_place(self, store, limits):
        first, second = several(store, 2)
        assert may_begin(limits, first, TWO)
        assert may_begin(limits, first, TWO)
        assert may_begin(limits, second, TWO)

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
    def test_whatever_ends_the_attempt_frees_the_place(self, store, limits, end):
        holder, waiter = in_line(store, limits, 2)
        assert served(limits) == []
        end(holder)
        assert served(limits) == ids(waiter)
        assert limits.usage() == [Usage(GPU, running=1, waiting=0)]
        assert may_begin(limits, waiter)

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
    def test_whoever_asks_finds_the_free_place(self, store, limits, end):
        holder, waiter = in_line(store, limits, 2)
        end(holder)
        assert may_begin(limits, waiter)

    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
    def test_whatever_ends_a_waiting_takes_it_out_of_the_line(self, store, limits, end):
        holder, gone, waiter = in_line(store, limits, 3)
        end(gone)
        holder.commit()
        assert served(limits) == ids(waiter)

    def test_a_parents_turning_back_frees_the_places_of_its_children(self, store, limits):
        parent = started(store)
        children = [Worker.take(store, child.execution_id) for child in parent.fan_out(2)]
        other = started(store)
        assert [ask(limits, worker) for worker in (*children, other)] == [NOW, None, None]
        is_turned_back(parent)
        assert served(limits) == ids(other)

    def test_undoing_takes_turns_of_its_own(self, store, limits):
        holder, other = in_line(store, limits, 2)
        is_turned_back(other)
        undoing = again(other)
        assert ask(limits, undoing) is None
        holder.commit()
        assert ask(limits, undoing) is None, "its chain doesn't say yet that it undoes"
        begins_to_undo(undoing)
        assert may_begin(limits, undoing)

    def test_the_next_attempt_asks_anew(self, store, limits):
        holder, waiter = in_line(store, limits, 2)
        fails_an_attempt(holder)
        retrying = again(holder)
        assert ask(limits, retrying) is None
        assert may_begin(limits, waiter)

    def test_a_place_that_was_given_up_by_parking_isnt_kept_for_later(self, store, limits):
        holder, waiter = in_line(store, limits, 2)
        is_parked(holder)
        assert served(limits) == ids(waiter)
        store.unpark(holder.execution_id, "go on")
        assert ask(limits, again(holder)) is None

    def test_a_larger_limit_lets_more_run(self, store, limits):
        _, second, third = in_line(store, limits, 3)
        assert served(limits, TWO) == ids(second)
        assert may_begin(limits, second, TWO)
        assert ask(limits, third, TWO) is None

    def test_a_smaller_limit_ends_nothing(self, store, limits):
        first, second = in_line(store, limits, 2, TWO)
        third = started(store)
        assert may_begin(limits, second)
        assert ask(limits, third) is None
        first.commit()
        assert ask(limits, third) is None
        second.commit()
        assert may_begin(limits, third)

    # -- the line ----------------------------------------------------------------------------

    def test_turns_are_given_in_the_order_in_which_they_were_asked_for(self, store, limits):
        holder, *waiting = in_line(store, limits, 5)
        for worker in waiting:
            holder.commit()
            assert served(limits) == ids(worker)
            assert [may_begin(limits, other) for other in waiting].count(True) == 1
            holder = worker

    def test_the_order_is_that_of_the_first_asking(self, store, limits):
        holder, first, second, third = in_line(store, limits, 4)
        for worker in (third, second, first, third):
            assert ask(limits, worker) is None
        order: list[object] = []
        for worker in (holder, first, second):
            worker.commit()
            order += served(limits)
        assert order == ids(first, second, third)

    def test_nobody_overtakes(self, store, limits):
        holder, first, second = in_line(store, limits, 3)
        holder.commit()
        assert ask(limits, second) is None
        assert ask(limits, started(store)) is None
        assert may_begin(limits, first)

    def test_several_places_are_filled_at_once(self, store, limits):
        first, second, *waiting = in_line(store, limits, 5, TWO)
        first.commit()
        second.commit()
        assert served(limits, TWO) == ids(*waiting[:2])
        assert served(limits, TWO) == []

    def test_who_is_served_is_as_it_is_stored(self, store, limits):
        holder, waiter = in_line(store, limits, 2)
        hand_back(waiter)
        holder.commit()
        (execution,) = limits.serve(GPU, ONE)
        assert execution == waiter.execution

    @pytest.mark.parametrize("by", ["serving", "asking"])
    def test_who_is_called_is_due_should_its_message_be_lost(self, store, limits, by):
        holder, first, second = in_line(store, limits, 3)
        hand_back(first)
        assert store.claim_due(10, LATER) == []
        holder.commit()
        if by == "serving":
            limits.serve(GPU, ONE)
        else:
            assert ask(limits, second) is None
        (due,) = eventually(lambda: store.claim_due(10, LATER))
        assert due.execution_id == first.execution_id

    def test_who_is_owned_isnt_looked_at_because_it_is_called(self, store, limits):
        holder, _ = in_line(store, limits, 2)
        holder.commit()
        limits.serve(GPU, ONE)
        assert store.claim_due(10, LATER) == []

    def test_who_goes_on_to_another_step_comes_to_the_end_of_the_line(self, store, limits):
        holder, first, second = in_line(store, limits, 3)
        first.commit()
        assert ask(limits, first) is None
        holder.commit()
        assert served(limits) == ids(second)

    # -- takeovers ---------------------------------------------------------------------------

    def test_a_permit_survives_a_takeover(self, store, limits, starts):
        holder, waiter = in_line(store, limits, 2)
        given = starts()
        successor = again(holder)
        assert ask(limits, waiter) is None
        assert may_begin(limits, successor)
        assert starts() == given
        successor.commit()
        assert may_begin(limits, waiter)

    def test_a_permit_is_found_by_who_takes_over_before_the_beginning(self, store, limits):
        holder, waiter = in_line(store, limits, 2)
        holder.commit()
        assert served(limits) == ids(waiter)
        assert may_begin(limits, again(waiter))

    def test_a_place_in_the_line_survives_a_takeover(self, store, limits):
        holder, first, second = in_line(store, limits, 3)
        successor = again(first)
        assert ask(limits, successor) is None
        holder.commit()
        assert ask(limits, second) is None
        assert may_begin(limits, successor)

    def test_a_zombie_gets_nothing_and_takes_nothing_from_its_successor(self, store, limits):
        zombie = started(store)
        assert may_begin(limits, zombie)
        successor = again(zombie)
        successor.commit()
        assert may_begin(limits, successor)
        assert ask(limits, zombie) is None
        assert limits.usage() == [Usage(GPU, running=1, waiting=0)]
        assert ask(limits, started(store)) is None
        assert may_begin(limits, successor)

    def test_who_asks_with_another_attempt_than_the_stored_one_gets_nothing(self, store, limits):
        worker = started(store)
        assert limits.take(worker.execution_id, GPU, ONE, head=worker.head, attempt=1) is None
        assert limits.usage() == []

    def test_an_unknown_execution_gets_nothing(self, store, limits):
        worker, stranger = started(store), new_execution()
        execution_id = stranger.execution_id
        assert limits.take(execution_id, GPU, ONE, head=worker.head, attempt=0) is None
        assert limits.usage() == []

    # -- those who don't come ----------------------------------------------------------------

    def test_who_is_called_and_does_not_come_loses_its_turn_and_keeps_its_place(
        self, store, limits, pass_time
    ):
        holder, absent, waiter, last = in_line(store, limits, 4)
        holder.commit()
        assert served(limits) == ids(absent)
        pass_time(PRESENT - MOMENT)
        assert ask(limits, waiter) is None
        assert ask(limits, last) is None
        pass_time(2 * MOMENT)
        assert served(limits) == ids(waiter)
        assert may_begin(limits, waiter)
        assert ask(limits, absent) is None
        waiter.commit()
        assert served(limits) == ids(absent)

    def test_who_has_not_asked_for_long_is_passed_over(self, store, limits, pass_time):
        holder, _, waiter = in_line(store, limits, 3)
        pass_time(PRESENT + MOMENT)
        assert ask(limits, waiter) is None
        holder.commit()
        assert served(limits) == ids(waiter)

    def test_who_runs_keeps_its_place_however_long_it_runs(self, store, limits, pass_time):
        holder, waiter = in_line(store, limits, 2)
        pass_time(100 * PRESENT)
        assert ask(limits, waiter) is None
        assert served(limits) == []
        assert may_begin(limits, again(holder))

    def test_a_place_that_was_handed_back_is_not_kept_for_ever(self, store, limits, pass_time):
        holder, waiter = in_line(store, limits, 2)
        hand_back(holder)
        assert ask(limits, waiter) is None
        pass_time(PRESENT + MOMENT)
        assert may_begin(limits, waiter)
        assert ask(limits, again(holder)) is None

    def test_late_is_not_too_late_for_a_place(self, store, limits, pass_time):
        holder, first, called = in_line(store, limits, 3)
        store.pause(first.execution_id, by="ann", why="wait")
        holder.commit()
        assert served(limits) == ids(called)
        store.resume(first.execution_id, by="ann", why="go on")
        pass_time(LATE + MOMENT)
        assert may_begin(limits, called)
        assert ask(limits, first) is None

    # -- pauses ------------------------------------------------------------------------------

    def test_the_paused_are_passed_over_and_keep_their_place(self, store, limits):
        holder, paused, waiter, last = in_line(store, limits, 4)
        hand_back(paused)
        store.pause(paused.execution_id, by="ann", why="wait")
        holder.commit()
        assert served(limits) == ids(waiter)
        store.resume(paused.execution_id, by="ann", why="go on")
        assert ask(limits, last) is None
        waiter.commit()
        assert served(limits) == ids(paused)

    def test_what_runs_on_during_a_pause_keeps_its_place(self, store, limits):
        holder, waiter = in_line(store, limits, 2)
        store.pause(holder.execution_id, by="ann", why="wait")
        assert ask(limits, waiter) is None
        holder.commit()
        assert may_begin(limits, waiter)

    def test_nothing_is_kept_for_who_is_paused_before_it_begins(self, store, limits):
        holder, called, waiter = in_line(store, limits, 3)
        hand_back(called)
        holder.commit()
        assert served(limits) == ids(called)
        store.pause(called.execution_id, by="ann", why="wait")
        assert served(limits) == ids(waiter)

    # -- resources ---------------------------------------------------------------------------

    def test_resources_know_nothing_of_each_other(self, store, limits):
        tpu = Limit(name="tpu", concurrency=1)
        first, second = several(store, 2)
        assert may_begin(limits, first)
        assert may_begin(limits, second, tpu, "tpu")
        assert ask(limits, second) is None
        assert ask(limits, first, tpu, "tpu") is None
        assert limits.usage() == [Usage(GPU, 1, 1), Usage("tpu", 1, 1)]

    def test_a_limit_holds_for_each_of_its_keys(self, store, limits):
        limit = Limit(name=GPU, concurrency=1, rate=6, per=timedelta(minutes=1), key=str)
        for customer in ("ann", "bob"):
            first, second = several(store, 2)
            resource = limit.resource(customer)
            assert may_begin(limits, first, limit, resource)
            assert ask(limits, second, limit, resource) is None
        assert [usage.resource for usage in limits.usage()] == ["gpu:ann", "gpu:bob"]

    def test_nothing_is_left_of_a_line_that_nobody_stands_in(self, store, limits):
        worker = started(store)
        assert may_begin(limits, worker)
        worker.finish()
        assert limits.usage() == []
        assert served(limits) == []
        assert may_begin(limits, started(store))

    def test_serving_where_nobody_has_asked_does_nothing(self, limits):
        assert limits.serve(GPU, SIX) == []
        assert limits.usage() == []

    # -- all at once -------------------------------------------------------------------------

    def test_many_who_ask_at_once_never_exceed_the_limit(self, store, limits):
        """Each runs until three do; a fourth would be seen."""
        three, count, threads = Limit(name=GPU, concurrency=3), 42, 8
        waiting: SimpleQueue[Worker] = SimpleQueue()
        for worker in several(store, count):
            waiting.put(worker)
        together, changed = Barrier(3), Condition()
        running: set[object] = set()
        most: list[int] = []

        def run_all() -> None:
            while (worker := next_waiting()) is not None:
                if ask(limits, worker, three) == NOW:
                    run(worker)
                else:
                    waiting.put(worker)
                    with changed:
                        changed.wait(timeout=0.05)

        def next_waiting() -> Worker | None:
            try:
                return waiting.get_nowait()
            except Empty:
                return None  # each that is left has a thread

        def run(worker: Worker) -> None:
            running.add(worker.execution_id)
            together.wait(timeout=60)
            (usage,) = limits.usage()
            most.append(max(usage.running, len(running)))
            running.remove(worker.execution_id)
            worker.finish()
            limits.serve(GPU, three)
            with changed:
                changed.notify_all()

        assert at_once([run_all] * threads) == [None] * threads
        assert len(most) == count
        assert max(most) == 3
        assert limits.usage() == []

    def test_of_many_who_serve_at_once_one_calls_each(self, store, limits):
        holder, *waiting = in_line(store, limits, 7)
        holder.commit()
        six = Limit(name=GPU, concurrency=6)
        called = at_once([lambda: served(limits, six)] * 6)
        assert sorted(len(calls) for calls in called) == [0, 0, 0, 0, 0, 6]
        assert [of for calls in called for of in calls] == ids(*waiting)

    def test_status_is_untouched_by_turns(self, store, limits):
        holder, waiter = in_line(store, limits, 2)
        hand_back(waiter)
        before = waiter.execution
        holder.commit()
        limits.serve(GPU, ONE)
        assert waiter.execution == before
        assert before.status is Status.ACTIVE
