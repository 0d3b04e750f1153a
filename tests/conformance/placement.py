"""Where and in which order executions run, until when, and from what they are forked."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from fencepost import identity
from fencepost.ports import ExecutionStore
from fencepost.records import CheckpointKind, EventName, Execution, Phase, Status
from tests.conformance.support import (
    LATER,
    NOW,
    Worker,
    child_of,
    eventually,
    names,
    new_execution,
    on_record,
    started,
)


def ids(executions: list[Execution]) -> list[UUID]:
    return [execution.execution_id for execution in executions]


def due_now(store: ExecutionStore, **fields: Any) -> Execution:
    """A new execution whose message counts as lost."""
    execution, _ = store.create(new_execution(**fields))
    store.defer(execution.execution_id, 0, NOW)
    return execution


class Placement:
    # queues and priorities

    def test_an_execution_is_made_where_it_belongs(self, store):
        execution, _ = store.create(new_execution(queue="gpu", priority=8))
        assert (execution.queue, execution.priority) == ("gpu", 8)
        plain, _ = store.create(new_execution())
        assert plain.queue is None
        assert plain.priority == 5

    def test_each_commit_says_where_the_next_command_belongs(self, store):
        worker = started(store, new_execution(priority=7))
        worker.commit("prepare", queue="gpu")
        assert worker.execution.queue == "gpu"
        worker.commit("stage")
        now = worker.execution
        assert now.queue is None
        assert now.priority == 7

    def test_children_have_what_they_are_given(self, store):
        parent = started(store, new_execution(queue="gpu", priority=7))
        parent.fan_out(1)
        (child,) = store.children(parent.execution_id, "modules", 1)
        assert (child.queue, child.priority, child.deadline_at) == (None, 5, None)

    def test_the_highest_priority_comes_first_then_the_longest_due(self, store):
        made = {
            (priority, number): due_now(store, priority=priority).execution_id
            for number in range(2)
            for priority in (5, 9, 0)
        }
        order = [made[priority, number] for priority in (9, 5, 0) for number in range(2)]
        assert ids(eventually(lambda: store.claim_due(4, LATER))) == order[:4]
        assert ids(store.claim_due(4, LATER)) == order[4:]

    def test_only_what_is_known_is_claimed(self, store):
        mine = due_now(store, saga="mine").execution_id
        theirs = due_now(store, saga="theirs").execution_id
        assert store.claim_due(10, LATER, known=[]) == []
        assert store.claim_due(10, LATER, known=[("mine", "v2"), ("theirs", "v9")]) == []
        known = [("mine", "v1"), ("mine", "v2"), ("other", "v1")]
        assert ids(eventually(lambda: store.claim_due(10, LATER, known=known))) == [mine]
        assert store.claim_due(10, LATER, known=known) == []
        assert ids(store.claim_due(10, LATER)) == [theirs]

    def test_of_those_that_wait_only_the_known_are_woken(self, store):
        worker = started(store)
        worker.waits(wake_in=NOW)
        assert store.claim_waiting(10, LATER, known=[]) == []
        assert store.claim_waiting(10, LATER, known=[(worker.execution.saga, "v9")]) == []
        known = [(worker.execution.saga, worker.execution.version)]
        found = eventually(lambda: store.claim_waiting(10, LATER, known=known))
        assert ids(found) == [worker.execution_id]

    def test_places_are_filled_without_knowing_the_parent(self, store):
        parent = started(store)
        parent.fan_out(2, cap=1, due_in=NOW)
        first, _ = store.children(parent.execution_id, "modules", 1)
        assert store.claim_waiting(10, LATER, known=[]) == []
        Worker.take(store, first.execution_id).finish()
        found = eventually(lambda: store.claim_waiting(10, LATER, known=[]))
        assert ids(found) == [parent.execution_id]

    def test_the_unknown_takes_nobodys_place_in_a_batch(self, store):
        for _ in range(3):
            due_now(store, saga="theirs", priority=9)
        mine = due_now(store, saga="mine").execution_id
        assert ids(eventually(lambda: store.claim_due(1, LATER, known=[("mine", "v1")]))) == [mine]

    # deadlines

    def test_a_deadline_counts_from_the_insertion(self, store):
        execution, _ = store.create(new_execution(deadline_in=LATER))
        left = execution.deadline_at - execution.created_at - LATER
        assert timedelta(seconds=-1) < left < timedelta(seconds=1)
        moment = execution.created_at + 2 * LATER
        fixed, _ = store.create(new_execution(deadline_at=moment))
        assert fixed.deadline_at == moment
        assert store.overdue(10) == []

    def test_a_deadline_is_kept_by_commits_and_given_to_children(self, store):
        worker = started(store, new_execution(deadline_in=LATER))
        deadline = worker.execution.deadline_at
        worker.commit("prepare")
        assert worker.execution.deadline_at == deadline
        child = new_execution(
            parent_id=worker.execution_id,
            parent_step="modules",
            parent_visit=1,
            child_index=0,
            root_id=worker.execution_id,
            deadline_in=LATER,
        )
        worker.commit(
            "modules", kind=CheckpointKind.FAN_OUT, status=Status.WAITING, children=(child,)
        )
        assert store.get(child.execution_id).deadline_at > deadline

    def test_what_is_overdue_is_found_wherever_it_stands(self, store, passed):
        running = started(store, new_execution(deadline_in=LATER))
        waiting = started(store, new_execution(deadline_in=LATER))
        waiting.waits(waits_for="approved")
        paused = started(store, new_execution(deadline_in=LATER))
        store.pause(paused.execution_id, by="ann", why="lunch")
        started(store, new_execution(deadline_in=LATER))
        started(store)
        for worker in (running, waiting, paused):
            passed(worker.execution_id, "deadline_at")
        late = store.overdue(10)
        assert sorted(ids(late)) == sorted(w.execution_id for w in (running, waiting, paused))
        assert waiting.execution in late
        assert store.overdue(10) == late
        assert len(store.overdue(2)) == 2

    def test_a_queued_child_can_be_overdue(self, store, passed):
        parent = started(store)
        parent.fan_out(2, cap=1)
        _, queued = store.children(parent.execution_id, "modules", 1)
        passed(queued.execution_id, "deadline_at")
        assert ids(store.overdue(10)) == [queued.execution_id]

    def test_nothing_else_is_overdue(self, store, passed):
        ended, parked, undoing, past = (started(store) for _ in range(4))
        ended.finish()
        store.park(parked.token(), "why", None)
        undoing.compensate()
        past.commit("charge", phase=Phase.PAST_PIVOT)
        for worker in (ended, parked, undoing, past):
            passed(worker.execution_id, "deadline_at")
        assert store.overdue(10) == []

    def test_one_that_was_turned_back_is_overdue_no_more(self, store, passed):
        worker = started(store, new_execution(deadline_in=LATER))
        passed(worker.execution_id, "deadline_at")
        (late,) = store.overdue(10)
        store.turn_back(
            late.execution_id, {"code": "x"}, EventName.DEADLINE_PASSED, {}, only_forward=True
        )
        event = on_record(store, late.execution_id, EventName.DEADLINE_PASSED)
        assert event.details == {"previous_epoch": 1}
        assert store.overdue(10) == []

    # forks

    def test_a_fork_begins_with_a_copy_of_the_prefix(self, store):
        source = started(store)
        source.commit("prepare", {"größe": 1})
        source = Worker.take(store, source.execution_id)
        source.landed(store.commit(replace(source.extension("stage", [1, None]), attempt=3)))
        source.commit("gate", "later")
        before = store.chain(source.execution_id)
        new = new_execution({"order": 2}, forked_from=source.execution_id, prefix=before[1:3])
        fork, made = store.create(new)
        assert made
        assert fork == store.get(new.execution_id)
        assert (fork.forked_from, fork.epoch, fork.owner) == (source.execution_id, 0, None)
        start, *inherited = store.chain(new.execution_id)
        assert (start.kind, start.result) == (CheckpointKind.START, {"order": 2})
        for original, copy in zip(before[1:3], inherited, strict=True):
            assert copy.seq == original.seq
            for same in ("kind", "step", "visit", "attempt", "result"):
                assert getattr(copy, same) == getattr(original, same)
            assert (copy.epoch, copy.owner) == (0, "")
            assert copy.execution_id == new.execution_id
            key = identity.step_key(new.execution_id, original.step, original.visit)
            assert copy.step_key == key
            assert copy.checkpoint_id != original.checkpoint_id
        parents = [entry.parent_checkpoint_id for entry in inherited]
        assert parents == [start.checkpoint_id, inherited[0].checkpoint_id]
        assert (fork.head, fork.head_seq) == (inherited[-1].checkpoint_id, 2)
        assert store.chain(source.execution_id) == before
        event = on_record(store, new.execution_id, EventName.FORKED)
        assert (event.epoch, event.details) == (0, {"from": str(source.execution_id), "seq": 2})

    def test_a_fork_goes_on_by_itself(self, store):
        source = started(store)
        source.commit("prepare")
        source.commit("stage")
        prefix = store.chain(source.execution_id)[1:2]
        new = new_execution(forked_from=source.execution_id, prefix=prefix)
        fork = started(store, new)
        assert (fork.seq, fork.epoch) == (1, 1)
        fork.commit("stage", {"of": "the fork"})
        source.commit("gate")
        assert [entry.step for entry in store.chain(new.execution_id)] == [
            "start",
            "prepare",
            "stage",
        ]

    def test_a_fork_may_begin_past_its_pivot(self, store):
        fork, _ = store.create(new_execution(forked_from=uuid4(), phase=Phase.PAST_PIVOT))
        assert fork.phase is Phase.PAST_PIVOT

    def test_a_repeated_fork_is_found(self, store):
        source = started(store)
        source.commit("prepare")
        new = new_execution(
            forked_from=source.execution_id, prefix=store.chain(source.execution_id)[1:]
        )
        first, _ = store.create(new)
        again, made = store.create(new)
        assert (again, made) == (first, False)
        assert names(store, new.execution_id) == [EventName.STARTED, EventName.FORKED]
        assert len(store.chain(new.execution_id)) == 2

    def test_a_fork_of_an_untouched_execution_inherits_nothing(self, store):
        source, _ = store.create(new_execution())
        fork, _ = store.create(new_execution(forked_from=source.execution_id))
        assert (fork.head_seq, fork.head) == (0, identity.start_checkpoint_id(fork.execution_id))
        assert on_record(store, fork.execution_id, EventName.FORKED).details["seq"] == 0

    def test_a_fork_joins_the_callers_transaction(self, store, ledger):
        source = started(store)
        source.commit("prepare")
        prefix = store.chain(source.execution_id)[1:]
        kept, dropped = (
            new_execution(forked_from=source.execution_id, prefix=prefix) for _ in range(2)
        )
        with ledger.session() as session:
            fork, made = store.create(kept, session=session)
            assert (made, fork.head_seq) == (True, 1)
            session.commit()
        with ledger.session() as session:
            store.create(dropped, session=session)
            session.rollback()
        assert len(store.chain(kept.execution_id)) == 2
        assert store.chain(dropped.execution_id) == ()

    # each fan-out by itself

    @pytest.mark.parametrize("left", [Status.QUEUED, Status.ACTIVE])
    def test_places_and_joins_are_those_of_the_fan_out_at_the_head(self, store, left):
        parent = started(store)
        elsewhere = new_execution(
            execution_id=uuid4(),
            parent_id=parent.execution_id,
            parent_step="elsewhere",
            parent_visit=1,
            child_index=0,
            root_id=parent.execution_id,
            status=left,
        )
        parent.commit("elsewhere", kind=CheckpointKind.FAN_OUT, children=(elsewhere,))
        parent.fan_out(2, cap=1, due_in=NOW)
        first, second = store.children(parent.execution_id, "modules", 1)
        assert store.admit(parent.execution_id, LATER) == []
        assert store.claim_waiting(10, LATER) == []
        Worker.take(store, first.execution_id).finish()
        assert ids(eventually(lambda: store.claim_waiting(10, NOW))) == [parent.execution_id]
        assert ids(store.admit(parent.execution_id, LATER)) == [second.execution_id]
        Worker.take(store, second.execution_id).finish()
        assert ids(eventually(lambda: store.claim_waiting(10, NOW))) == [parent.execution_id]
        Worker.take(store, parent.execution_id)

    def test_a_plain_wait_has_no_places(self, store):
        parent = started(store)
        queued = child_of(parent.execution, 0, status=Status.QUEUED)
        parent.commit("modules", kind=CheckpointKind.FAN_OUT, children=(queued,))
        parent.waits(wake_in=LATER)
        store.defer(parent.execution_id, 1, NOW)
        assert store.admit(parent.execution_id, LATER) == []
        assert store.claim_waiting(10, LATER) == []
