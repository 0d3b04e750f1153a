"""Joins that come before the last child has ended, and stopping the others."""

from __future__ import annotations

from uuid import UUID

import pytest

from fencepost.errors import ExecutionLeaseLostError
from fencepost.failure import PARENT_FAILED
from fencepost.ports import ExecutionStore
from fencepost.records import CheckpointKind, EventName, Execution, Phase, Status
from tests.conformance.support import (
    FAILURE,
    LATER,
    NOW,
    Worker,
    acquirable,
    eventually,
    next_of_line,
    on_record,
    recorded_epochs,
    run_child,
    started,
)

STOPPED = {
    "error_type": "",
    "code": "saga.stopped",
    "message": "enough have succeeded",
    "details": {},
}


def children(store: ExecutionStore, parent: Worker, visit: int = 1) -> list[Execution]:
    return store.children(parent.execution_id, "modules", visit)


def statuses(store: ExecutionStore, parent: Worker, visit: int = 1) -> list[Status]:
    return [child.status for child in children(store, parent, visit)]


def found(store: ExecutionStore) -> list[UUID]:
    return [execution.execution_id for execution in store.claim_waiting(10, NOW)]


class Joins:
    # woken early

    @pytest.mark.parametrize("status", [Status.FAILED, Status.COMPENSATED])
    def test_a_parent_is_woken_by_as_many_failures_as_it_wanted(self, store, status):
        parent = started(store)
        parent.fan_out(4, due_in=NOW, wakes_at_failures=2, wakes_at_successes=3)
        first, second, third, _ = children(store, parent)
        run_child(store, first, status)
        run_child(store, second)
        assert found(store) == []
        assert not acquirable(store, parent.execution_id)
        run_child(store, third, status)
        assert eventually(lambda: found(store)) == [parent.execution_id]
        assert acquirable(store, parent.execution_id)

    def test_a_parent_is_woken_by_as_many_successes_as_it_wanted(self, store):
        parent = started(store)
        parent.fan_out(4, due_in=NOW, wakes_at_failures=3, wakes_at_successes=2)
        first, second, third, _ = children(store, parent)
        run_child(store, first)
        run_child(store, second, Status.FAILED)
        assert found(store) == []
        assert not acquirable(store, parent.execution_id)
        run_child(store, third)
        assert eventually(lambda: found(store)) == [parent.execution_id]
        assert acquirable(store, parent.execution_id)

    def test_what_was_wanted_is_forgotten_with_the_next_commit(self, store):
        parent = started(store)
        parent.fan_out(3, due_in=NOW, wakes_at_successes=1)
        run_child(store, children(store, parent)[0])
        parent = Worker.take(store, parent.execution_id)
        parent.stop()
        assert not acquirable(store, parent.execution_id)
        assert found(store) == []

    def test_one_that_was_continued_is_neither_failed_nor_succeeded(self, store):
        parent = started(store)
        parent.fan_out(2, due_in=NOW, wakes_at_failures=1, wakes_at_successes=1)
        first, _ = children(store, parent)
        again = next_of_line(first)
        Worker.take(store, first.execution_id).finish(Status.CONTINUED, children=(again,))
        assert found(store) == []
        assert not acquirable(store, parent.execution_id)
        run_child(store, store.get(again.execution_id))
        assert acquirable(store, parent.execution_id)

    def test_only_the_children_of_this_visit_count(self, store):
        parent = started(store)
        parent.fan_out(2, due_in=NOW, wakes_at_failures=2)
        for child in children(store, parent):
            run_child(store, child, Status.FAILED)
        parent = Worker.take(store, parent.execution_id)
        parent.commit("modules", kind=CheckpointKind.JOIN)
        parent.fan_out(2, cap=1, due_in=NOW, visit=2, wakes_at_failures=1)
        assert found(store) == []
        assert not acquirable(store, parent.execution_id)
        first, second = children(store, parent, visit=2)
        run_child(store, first)
        assert eventually(lambda: found(store)) == [parent.execution_id]
        assert not acquirable(store, parent.execution_id)
        assert [c.execution_id for c in store.admit(parent.execution_id, LATER)] == [
            second.execution_id
        ]
        run_child(store, second, Status.FAILED)
        assert acquirable(store, parent.execution_id)

    # stopping

    def test_live_children_are_fenced_and_undo_and_the_others_stay(self, store):
        parent = started(store)
        parent.fan_out(6, cap=5, due_in=NOW, wakes_at_successes=1)
        done, failed, running, parked, nesting, queued = children(store, parent)
        run_child(store, done)
        run_child(store, failed, Status.FAILED)
        late = Worker.take(store, running.execution_id)
        store.park(Worker.take(store, parked.execution_id).token(), "why", {"code": "x"})
        middle = Worker.take(store, nesting.execution_id)
        middle.fan_out(1)
        (nested,) = children(store, middle)
        leaf = Worker.take(store, nested.execution_id)
        parent = Worker.take(store, parent.execution_id)
        parent.stop(tells=STOPPED)

        for worker in (late, leaf):
            with pytest.raises(ExecutionLeaseLostError):
                worker.commit("stage")
        assert statuses(store, parent) == [Status.SUCCEEDED, Status.FAILED, *[Status.ACTIVE] * 4]
        for before in (running, parked, nesting, queued):
            now = store.get(before.execution_id)
            assert (now.phase, now.owner, now.turned_back) == (Phase.COMPENSATING, None, STOPPED)
            assert (now.parked_reason, now.error, now.attempt) == (None, None, 0)
            raised = on_record(store, before.execution_id, EventName.EPOCH_RAISED)
            assert (
                raised.details.items()
                >= {"by": str(parent.execution_id), "head_seq": now.head_seq}.items()
            )
            assert recorded_epochs(store, before.execution_id) == list(range(1, now.epoch + 1))
        below = leaf.execution
        assert (below.status, below.phase) == (Status.WAITING, Phase.COMPENSATING)
        assert below.turned_back == STOPPED
        assert recorded_epochs(store, leaf.execution_id) == [1, 2]
        assert not acquirable(store, leaf.execution_id)
        due = {e.execution_id for e in eventually(lambda: store.claim_due(10, LATER))}
        assert due == {e.execution_id for e in (running, parked, nesting, queued)}
        # Nothing has changed for those that had ended, nor for the parent.
        assert (store.get(done.execution_id).epoch, parent.execution.epoch) == (1, 2)
        assert parent.execution.phase is Phase.FORWARD

    def test_the_cap_holds_for_stopping(self, store):
        parent = started(store)
        parent.fan_out(5, cap=2, wakes_at_successes=1)
        run_child(store, children(store, parent)[0])
        parent = Worker.take(store, parent.execution_id)
        parent.stop(cap=2)
        undoing = [Status.ACTIVE] * 2 + [Status.QUEUED] * 2
        assert statuses(store, parent) == [Status.SUCCEEDED, *undoing]

    def test_a_parent_joins_once_all_that_were_stopped_have_ended(self, store):
        parent = started(store)
        parent.fan_out(3, wakes_at_successes=1)
        run_child(store, children(store, parent)[0])
        parent = Worker.take(store, parent.execution_id)
        parent.stop()
        for child in children(store, parent)[1:]:
            assert found(store) == []
            assert not acquirable(store, parent.execution_id)
            worker = Worker.take(store, child.execution_id)
            worker.compensate()
            assert worker.execution.turned_back is None
            worker.finish(Status.COMPENSATED, phase=Phase.COMPENSATING)
        assert eventually(lambda: found(store)) == [parent.execution_id]
        parent = Worker.take(store, parent.execution_id)
        parent.commit("modules", kind=CheckpointKind.JOIN)
        assert parent.execution.phase is Phase.FORWARD

    def test_a_stop_that_finds_nobody_is_over_at_once(self, store):
        parent = started(store)
        parent.fan_out(2, wakes_at_successes=1)
        for child in children(store, parent):
            run_child(store, child)
        parent = Worker.take(store, parent.execution_id)
        parent.stop()
        assert acquirable(store, parent.execution_id)

    def test_a_continued_child_is_stopped_too(self, store):
        parent = started(store)
        parent.fan_out(2, wakes_at_successes=1)
        first, second = children(store, parent)
        again = next_of_line(first)
        Worker.take(store, first.execution_id).finish(Status.CONTINUED, children=(again,))
        run_child(store, second)
        parent = Worker.take(store, parent.execution_id)
        parent.stop()
        assert store.get(first.execution_id).phase is Phase.FORWARD
        assert store.get(again.execution_id).phase is Phase.COMPENSATING

    # a parent that fails while children are live

    def test_children_are_told_why_and_undo_when_their_turn_comes(self, store):
        parent = started(store)
        parent.fan_out(3, cap=2, wakes_at_failures=1)
        failed, running, queued = children(store, parent)
        late = Worker.take(store, running.execution_id)
        run_child(store, failed, Status.FAILED)
        parent = Worker.take(store, parent.execution_id)
        parent.compensate()
        with pytest.raises(ExecutionLeaseLostError):
            late.commit("stage")
        for child in (running, queued):
            now = store.get(child.execution_id)
            assert (now.status, now.turned_back) == (Status.WAITING, PARENT_FAILED)
        assert store.get(failed.execution_id).status is Status.FAILED
        parent.undo_fan_out(cap=1)
        assert statuses(store, parent) == [Status.FAILED, Status.ACTIVE, Status.QUEUED]
        worker = Worker.take(store, running.execution_id)
        assert worker.execution.turned_back == PARENT_FAILED
        worker.compensate()
        assert worker.execution.turned_back is None

    def test_a_parent_may_say_why(self, store):
        parent = started(store)
        (child,) = parent.fan_out(1, wakes_at_failures=1)
        parent.store.turn_back(parent.execution_id, STOPPED, EventName.CANCELLED, {})
        parent = Worker.take(store, parent.execution_id)
        parent.compensate(tells=STOPPED)
        assert store.get(child.execution_id).turned_back == STOPPED

    def test_a_parked_child_undoes_with_the_others(self, store):
        parent = started(store)
        parent.fan_out(2, wakes_at_failures=1)
        failed, parked = children(store, parent)
        store.park(Worker.take(store, parked.execution_id).token(), "why", {"code": "x"})
        run_child(store, failed, Status.FAILED)
        parent = Worker.take(store, parent.execution_id)
        parent.compensate()
        parent.undo_fan_out()
        now = store.get(parked.execution_id)
        assert (now.status, now.parked_reason, now.error) == (Status.ACTIVE, None, None)

    def test_a_commit_may_fail_and_stop_nobody(self, store):
        parent = started(store)
        parent.fan_out(2, wakes_at_successes=1)
        first, second = children(store, parent)
        run_child(store, first)
        stale = Worker.take(store, parent.execution_id)
        Worker.take(store, parent.execution_id)
        with pytest.raises(ExecutionLeaseLostError):
            stale.stop()
        with pytest.raises(ExecutionLeaseLostError):
            stale.commit(
                "gate",
                FAILURE,
                kind=CheckpointKind.COMPENSATING,
                phase=Phase.COMPENSATING,
                raise_epochs=True,
            )
        assert store.get(second.execution_id).epoch == 0
