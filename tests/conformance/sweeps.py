"""What the reaper finds: rows whose time has come, and parents that can go on."""

from __future__ import annotations

import time
from collections import Counter
from uuid import UUID

from fencepost.ports import ExecutionStore
from fencepost.records import Execution, Status
from tests.conformance.support import (
    LATER,
    NOW,
    Worker,
    at_once,
    eventually,
    milliseconds,
    new_execution,
    started,
)


def due_now(store: ExecutionStore, count: int = 1) -> list[Execution]:
    """New executions whose messages count as lost."""
    made = [store.create(new_execution())[0] for _ in range(count)]
    for execution in made:
        store.defer(execution.execution_id, 0, NOW)
    return made


def ids(executions: list[Execution]) -> list[UUID]:
    return [execution.execution_id for execution in executions]


class Sweeps:
    # claim_due

    def test_a_new_executions_message_is_given_some_time(self, store):
        store.create(new_execution())
        assert store.claim_due(10, LATER) == []

    def test_what_is_due_is_claimed_once(self, store):
        (execution,) = due_now(store)
        assert eventually(lambda: store.claim_due(10, LATER)) == [execution]
        assert store.claim_due(10, LATER) == []

    def test_a_claim_changes_nothing_that_matters(self, store):
        (execution,) = due_now(store)
        (claimed,) = eventually(lambda: store.claim_due(10, LATER))
        assert claimed == execution == store.get(execution.execution_id)
        assert Worker.take(store, execution.execution_id).epoch == 1

    def test_the_wait_grows_with_each_claim(self, store):
        (execution,) = due_now(store)
        hold = milliseconds(60)
        claimed_at = []
        for _ in range(4):
            (claimed,) = eventually(lambda: store.claim_due(10, hold))
            assert claimed.execution_id == execution.execution_id
            claimed_at.append(time.monotonic())
        assert claimed_at[1] - claimed_at[0] < claimed_at[3] - claimed_at[2]
        assert claimed_at[3] - claimed_at[2] > 0.2

    def test_the_wait_starts_anew_with_an_owner(self, store):
        (execution,) = due_now(store)
        for _ in range(3):
            eventually(lambda: store.claim_due(10, milliseconds(1)))
        worker = Worker.take(store, execution.execution_id)
        store.hand_back(worker.token(), NOW)
        eventually(lambda: store.claim_due(10, milliseconds(400)))
        before = time.monotonic()
        eventually(lambda: store.claim_due(10, milliseconds(1)))
        assert time.monotonic() - before < 0.8

    def test_an_owner_puts_the_reaper_off(self, store):
        (execution,) = due_now(store)
        Worker.take(store, execution.execution_id)
        assert store.claim_due(10, LATER) == []

    def test_a_commit_sets_when_to_look_again(self, store):
        worker, other = started(store), started(store)
        other.commit("prepare")
        worker.commit("prepare", due_in=NOW)
        assert ids(eventually(lambda: store.claim_due(10, LATER))) == [worker.execution_id]

    def test_only_executions_to_which_work_is_owed_are_due(self, store):
        ended, parked, waiting = started(store), started(store), started(store)
        ended.finish(due_in=NOW)
        store.park(parked.token(), "why", None)
        waiting.fan_out(2, cap=1, due_in=NOW)
        for worker in (ended, parked, waiting):
            store.defer(worker.execution_id, 1, NOW)
        for child in store.children(waiting.execution_id, "modules", 1):
            store.defer(child.execution_id, 0, NOW)
        placed, queued = store.children(waiting.execution_id, "modules", 1)
        assert eventually(lambda: store.claim_due(10, LATER)) == [placed]
        assert queued.status is Status.QUEUED

    def test_the_limit_holds_and_the_longest_due_come_first(self, store):
        made = ids([due_now(store)[0] for _ in range(5)])
        first = eventually(lambda: store.claim_due(3, LATER))
        second = eventually(lambda: store.claim_due(3, LATER))
        assert len(first) == 3
        assert sorted(ids(first) + ids(second)) == sorted(made)

    def test_reapers_share_out_what_is_due(self, store):
        made = ids(due_now(store, 40))
        claimed: Counter[UUID] = Counter()

        def all_claimed() -> bool:
            for answer in at_once([lambda: store.claim_due(7, LATER)] * 6):
                assert isinstance(answer, list), answer
                assert len(answer) <= 7
                claimed.update(ids(answer))
            return len(claimed) == 40

        eventually(all_claimed)
        assert set(claimed) == set(made)
        assert set(claimed.values()) == {1}

    # claim

    def test_named_executions_are_claimed_if_work_is_owed(self, store):
        worker = started(store)
        ended, parked, waiting = started(store), started(store), started(store)
        ended.finish()
        store.park(parked.token(), "why", None)
        waiting.fan_out(2, cap=1)
        placed, queued = store.children(waiting.execution_id, "modules", 1)
        asked = [e.execution_id for e in (worker, ended, parked, waiting, placed, queued)]
        claimed = store.claim([*asked, new_execution().execution_id], LATER)
        assert sorted(ids(claimed)) == sorted([worker.execution_id, placed.execution_id])
        assert worker.execution in claimed
        assert store.claim([], LATER) == []

    def test_a_named_claim_hides_and_counts_like_any_other(self, store):
        (execution,) = due_now(store)
        for _ in range(3):
            assert store.claim([execution.execution_id], milliseconds(100)) == [execution]
        before = time.monotonic()
        assert store.claim_due(10, LATER) == []
        assert eventually(lambda: store.claim_due(10, LATER)) == [execution]
        assert time.monotonic() - before > 0.2

    # defer

    def test_deferring_moves_the_time_for_the_same_epoch_only(self, store):
        (execution,) = due_now(store)
        store.defer(execution.execution_id, 0, LATER)
        assert store.claim_due(10, LATER) == []
        worker = Worker.take(store, execution.execution_id)
        store.defer(execution.execution_id, 0, NOW)
        assert store.claim_due(10, LATER) == []
        store.defer(execution.execution_id, worker.epoch, NOW)
        assert ids(eventually(lambda: store.claim_due(10, LATER))) == [execution.execution_id]

    def test_deferring_the_unknown_is_harmless(self, store):
        store.defer(new_execution().execution_id, 1, NOW)
        assert store.claim_due(10, LATER) == []

    # claim_waiting

    def test_a_parent_is_joinable_once_its_children_have_ended(self, store):
        parent, other = started(store), started(store)
        parent.fan_out(2, due_in=NOW)
        other.fan_out(1, due_in=NOW)
        for child in store.children(parent.execution_id, "modules", 1):
            assert store.claim_waiting(10, LATER) == []
            Worker.take(store, child.execution_id).finish()
        (joinable,) = eventually(lambda: store.claim_waiting(10, LATER))
        assert joinable == parent.execution
        assert store.claim_waiting(10, LATER) == []
        Worker.take(store, parent.execution_id)

    def test_a_claimed_parent_comes_again_if_nobody_joins(self, store):
        parent = started(store)
        parent.fan_out(1, due_in=NOW)
        (child,) = store.children(parent.execution_id, "modules", 1)
        Worker.take(store, child.execution_id).finish()
        for _ in range(3):
            claimed = eventually(lambda: store.claim_waiting(10, milliseconds(20)))
            assert ids(claimed) == [parent.execution_id]
        worker = Worker.take(store, parent.execution_id)
        worker.finish()
        assert store.claim_waiting(10, LATER) == []

    def test_a_parent_with_places_to_fill_is_found(self, store):
        parent = started(store)
        parent.fan_out(3, cap=1, due_in=NOW)
        assert store.claim_waiting(10, LATER) == []
        first, *_ = store.children(parent.execution_id, "modules", 1)
        Worker.take(store, first.execution_id).finish()
        found = eventually(lambda: store.claim_waiting(10, milliseconds(1)))
        assert ids(found) == [parent.execution_id]
        store.admit(parent.execution_id, LATER)
        store.defer(parent.execution_id, 1, NOW)
        assert store.claim_waiting(10, LATER) == []

    def test_a_queued_child_of_an_uncapped_parent_is_found(self, store):
        parent = started(store)
        parent.fan_out(2, due_in=NOW)
        first, second = store.children(parent.execution_id, "modules", 1)
        Worker.take(store, second.execution_id).finish()
        store.park(Worker.take(store, first.execution_id).token(), "why", None)
        store.unpark(first.execution_id, "go on")
        found = eventually(lambda: store.claim_waiting(10, LATER))
        assert ids(found) == [parent.execution_id]
        (admitted,) = store.admit(parent.execution_id, LATER)
        assert admitted.execution_id == first.execution_id

    def test_reapers_share_out_the_joinable(self, store):
        parents = [started(store) for _ in range(8)]
        for parent in parents:
            parent.fan_out(1, due_in=NOW)
            (child,) = store.children(parent.execution_id, "modules", 1)
            Worker.take(store, child.execution_id).finish()
        claimed: Counter[UUID] = Counter()

        def all_claimed() -> bool:
            for answer in at_once([lambda: store.claim_waiting(3, LATER)] * 4):
                assert isinstance(answer, list), answer
                claimed.update(ids(answer))
            return len(claimed) == 8

        eventually(all_claimed)
        assert set(claimed.values()) == {1}
