"""What every limit store must do: subclass it and give the fixtures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from queue import Empty, SimpleQueue
from threading import Barrier, Condition

import pytest

from fencepost.limits import LATE, PRESENT, Limit, Usage
from fencepost.ports import ExecutionStore, LimitStore
from fencepost.records import CheckpointKind, EventName, Execution, Phase, Status
from tests.conformance.support import (
    FAILURE,
    LATER,
    NOW,
    Worker,
    at_once,
    eventually,
    new_execution,
    started,
)

GPU = "gpu"
ONE = Limit(name=GPU, concurrency=1)
TWO = Limit(name=GPU, concurrency=2)
SIX = Limit(name=GPU, rate=6, per=timedelta(minutes=1))
SPACING = timedelta(seconds=10)
MOMENT = timedelta(seconds=1)
CAUSE = {"error_type": "Cancelled", "code": "execution.cancelled", "message": "", "details": {}}

Ends = Callable[[Worker], object]


def ask(
    limits: LimitStore, worker: Worker, limit: Limit = ONE, resource: str = GPU
) -> timedelta | None:
    """As an owner asks before it runs a body."""
    return limits.take(
        worker.execution_id,
        resource,
        limit,
        head=worker.head,
        attempt=worker.execution.attempt,
    )


def wait_of(limits: LimitStore, worker: Worker, limit: Limit) -> timedelta:
    """How long one has to wait that has been given a start."""
    wait = ask(limits, worker, limit)
    assert wait is not None
    return wait


def may_begin(limits: LimitStore, worker: Worker, limit: Limit = ONE, resource: str = GPU) -> bool:
    return ask(limits, worker, limit, resource) == NOW


def several(store: ExecutionStore, count: int) -> list[Worker]:
    return [started(store) for _ in range(count)]


def in_line(
    store: ExecutionStore, limits: LimitStore, count: int, limit: Limit = ONE
) -> list[Worker]:
    """Owners that have asked one after the other."""
    workers = several(store, count)
    for worker in workers:
        ask(limits, worker, limit)
    return workers


def hand_back(worker: Worker) -> None:
    worker.store.hand_back(worker.token(), LATER)


def again(worker: Worker) -> Worker:
    """The next owner of the same execution."""
    return Worker.take(worker.store, worker.execution_id)


def served(limits: LimitStore, limit: Limit = ONE) -> list[object]:
    return [execution.execution_id for execution in limits.serve(GPU, limit)]


def ids(*workers: Worker) -> list[object]:
    return [worker.execution_id for worker in workers]


def fails_an_attempt(worker: Worker) -> None:
    worker.store.record_attempt(worker.token(), 1, FAILURE, LATER)


def is_parked(worker: Worker) -> None:
    worker.store.park(worker.token(), "in doubt", None)


def is_turned_back(worker: Worker) -> Execution:
    return worker.store.turn_back(worker.execution_id, CAUSE, EventName.CANCELLED, {})


def begins_to_undo(worker: Worker) -> None:
    worker.commit(
        "compensation",
        FAILURE,
        kind=CheckpointKind.COMPENSATING,
        phase=Phase.COMPENSATING,
        raise_epochs=True,
    )
    worker.epoch += 1


ENDS: dict[str, Ends] = {
    "commit": lambda worker: worker.commit(),
    "end": lambda worker: worker.finish(),
    "wait": lambda worker: worker.waits(wake_in=LATER),
    "failed attempt": fails_an_attempt,
    "parking": is_parked,
    "turning back": is_turned_back,
    "undoing": begins_to_undo,
}


class LimitStoreConformance:
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

    # -- rates -------------------------------------------------------------------------------

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

    def test_starts_that_are_asked_for_at_once_are_given_evenly(self, store, limits, starts):
        workers = several(store, 16)
        calls = [lambda worker=worker: ask(limits, worker, SIX) for worker in workers]
        waits = at_once(calls)
        assert waits.count(NOW) == 1
        given = starts()
        assert len(given) == 16
        assert {later - earlier for earlier, later in pairwise(given)} == {SPACING}

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
