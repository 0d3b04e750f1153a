"""Parents and children: fan-out, admission, join, and undoing all of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from fencepost.errors import ExecutionLeaseLostError, StaleLeaseFenceError
from fencepost.ports import ExecutionStore
from fencepost.records import (
    Acquired,
    CheckpointKind,
    EventName,
    Execution,
    Phase,
    Refused,
    Status,
)
from tests.conformance.support import (
    FAILURE,
    LATER,
    NOW,
    Worker,
    at_once,
    child_of,
    eventually,
    names,
    new_execution,
    next_of_line,
    run_child,
    started,
)


def statuses(executions: list[Execution]) -> list[Status]:
    return [execution.status for execution in executions]


def children(store: ExecutionStore, parent: Worker) -> list[Execution]:
    return store.children(parent.execution_id, "modules", 1)


def rejoin(store: ExecutionStore, parent: Worker) -> Worker:
    """The next owner of a parent whose children have ended."""
    return Worker.take(store, parent.execution_id)


def failed_family(store: ExecutionStore, count: int = 3, cap: int | None = None) -> Worker:
    """A parent whose children have all succeeded, and that is now compensating."""
    parent = started(store)
    parent.fan_out(count, cap=cap)
    while ready := [c for c in children(store, parent) if c.status is Status.ACTIVE]:
        for child in ready:
            run_child(store, child)
        store.admit(parent.execution_id, LATER)
    parent = rejoin(store, parent)
    parent.commit("modules", kind=CheckpointKind.JOIN)
    parent.compensate()
    return parent


class Families:
    # fan-out

    def test_children_come_with_their_fan_out(self, store):
        parent = started(store)
        planned = parent.fan_out(3)
        made = children(store, parent)
        assert [child.execution_id for child in made] == [new.execution_id for new in planned]
        assert [child.child_index for child in made] == [0, 1, 2]
        assert statuses(made) == [Status.ACTIVE] * 3
        for child, new in zip(made, planned, strict=True):
            assert child.parent_id == parent.execution_id
            assert (child.parent_step, child.parent_visit) == ("modules", 1)
            assert (child.root_id, child.lineage_id) == (parent.execution_id, new.lineage_id)
            assert (child.epoch, child.owner) == (0, None)
            (start,) = store.chain(child.execution_id)
            assert start.result == child.input == new.input
            assert EventName.STARTED in names(store, child.execution_id)
        now = parent.execution
        assert (now.status, now.owner, now.max_concurrency) == (Status.WAITING, None, None)
        assert store.children(parent.execution_id, "modules", 2) == []

    def test_a_refused_fan_out_leaves_no_children(self, store):
        parent = started(store)
        Worker.take(store, parent.execution_id)
        with pytest.raises(ExecutionLeaseLostError):
            parent.fan_out(3)
        assert children(store, parent) == []

    def test_a_repeated_fan_out_makes_no_second_set(self, store):
        parent = started(store)
        commit = parent.extension(
            "modules",
            kind=CheckpointKind.FAN_OUT,
            status=Status.WAITING,
            children=(child_of(parent.execution, 0),),
        )
        entry = store.commit(commit)
        assert store.commit(commit) == entry
        assert len(children(store, parent)) == 1

    # admission

    def test_the_rest_is_queued_behind_the_cap(self, store):
        parent = started(store)
        parent.fan_out(4, cap=2)
        made = children(store, parent)
        assert statuses(made) == [Status.ACTIVE] * 2 + [Status.QUEUED] * 2
        assert parent.execution.max_concurrency == 2
        queued = made[2]
        refused = store.acquire(queued.execution_id, "early", 1, LATER)
        assert refused == Refused(Status.QUEUED, 0)
        assert store.admit(parent.execution_id, LATER) == []

    def test_free_places_are_filled_by_index(self, store):
        parent = started(store)
        parent.fan_out(5, cap=2)
        run_child(store, children(store, parent)[1])
        (admitted,) = store.admit(parent.execution_id, LATER)
        assert (admitted.child_index, admitted.status) == (2, Status.ACTIVE)
        assert statuses(children(store, parent)).count(Status.QUEUED) == 2
        for child in children(store, parent)[::2][:2]:
            run_child(store, child)
        admitted = store.admit(parent.execution_id, LATER)
        assert [child.child_index for child in admitted] == [3, 4]

    def test_an_admitted_child_is_due_when_asked(self, store):
        parent = started(store)
        parent.fan_out(2, cap=1)
        run_child(store, children(store, parent)[0])
        (admitted,) = store.admit(parent.execution_id, NOW)
        assert eventually(lambda: store.claim_due(10, LATER)) == [admitted]

    def test_admissions_never_exceed_the_cap(self, store):
        parent = started(store)
        parent.fan_out(12, cap=3)
        seen = 0
        while live := [c for c in children(store, parent) if c.status is Status.ACTIVE]:
            assert len(live) == min(3, 12 - seen)
            run_child(store, live[0])
            seen += 1
            answers = at_once([lambda: store.admit(parent.execution_id, LATER)] * 4)
            admitted = [child for answer in answers for child in answer]
            assert len(admitted) == (1 if seen <= 9 else 0)
        assert statuses(children(store, parent)) == [Status.SUCCEEDED] * 12

    def test_a_child_that_continues_as_new_keeps_its_place(self, store):
        parent = started(store)
        parent.fan_out(2, cap=1)
        first = children(store, parent)[0]
        again = next_of_line(first)
        Worker.take(store, first.execution_id).finish(Status.CONTINUED, children=(again,))
        assert store.admit(parent.execution_id, LATER) == []
        latest = children(store, parent)
        assert latest[0].execution_id == again.execution_id
        assert statuses(latest) == [Status.ACTIVE, Status.QUEUED]
        run_child(store, latest[0])
        assert len(store.admit(parent.execution_id, LATER)) == 1

    def test_a_parked_child_leaves_its_place_and_queues_for_another(self, store):
        parent = started(store)
        parent.fan_out(3, cap=1)
        first, *_ = children(store, parent)
        store.park(Worker.take(store, first.execution_id).token(), "why", None)
        (second,) = store.admit(parent.execution_id, LATER)
        assert second.child_index == 1
        assert store.unpark(first.execution_id, "go on").status is Status.QUEUED
        assert store.admit(parent.execution_id, LATER) == []
        run_child(store, second)
        (admitted,) = store.admit(parent.execution_id, LATER)
        assert admitted.execution_id == first.execution_id

    def test_nothing_is_admitted_without_a_waiting_parent(self, store):
        parent = started(store)
        assert store.admit(parent.execution_id, LATER) == []
        parent.commit("modules", kind=CheckpointKind.FAN_OUT, children=self._four(parent))
        assert store.admit(parent.execution_id, LATER) == []
        assert store.admit(new_execution().execution_id, LATER) == []

    def test_a_child_that_waits_for_its_own_children_keeps_its_place(self, store):
        parent = started(store)
        parent.fan_out(2, cap=1)
        middle = Worker.take(store, children(store, parent)[0].execution_id)
        middle.fan_out(1)
        assert store.admit(parent.execution_id, LATER) == []
        run_child(store, children(store, middle)[0])
        rejoin(store, middle).finish()
        assert len(store.admit(parent.execution_id, LATER)) == 1

    # join

    def test_a_parent_waits_for_all_its_children(self, store):
        parent = started(store)
        parent.fan_out(2)
        first, second = children(store, parent)
        refused = store.acquire(parent.execution_id, "early", 2, LATER)
        assert refused == Refused(Status.WAITING, 1)
        run_child(store, first)
        store.park(Worker.take(store, second.execution_id).token(), "why", None)
        assert isinstance(store.acquire(parent.execution_id, "early", 2, LATER), Refused)
        store.unpark(second.execution_id, "go on")
        store.admit(parent.execution_id, NOW)
        run_child(store, second, Status.FAILED)
        joined = store.acquire(parent.execution_id, "joiner", 2, LATER)
        assert isinstance(joined, Acquired)
        assert (joined.execution.status, joined.execution.owner) == (Status.ACTIVE, "joiner")

    def test_joining_is_no_recovery(self, store):
        parent = started(store)
        parent.fan_out(1)
        run_child(store, children(store, parent)[0])
        assert rejoin(store, parent).execution.recoveries == 0
        assert EventName.RECOVERED not in names(store, parent.execution_id)

    def test_a_continued_child_is_not_the_end_of_its_line(self, store):
        parent = started(store)
        parent.fan_out(1)
        (child,) = children(store, parent)
        again = next_of_line(child)
        Worker.take(store, child.execution_id).finish(Status.CONTINUED, children=(again,))
        assert isinstance(store.acquire(parent.execution_id, "early", 2, LATER), Refused)
        run_child(store, store.get(again.execution_id))
        assert isinstance(store.acquire(parent.execution_id, "joiner", 2, LATER), Acquired)

    def test_one_of_many_joins(self, store):
        parent = started(store)
        parent.fan_out(1)
        run_child(store, children(store, parent)[0])
        answers = at_once(
            [partial(store.acquire, parent.execution_id, f"w{i}", 2, LATER) for i in range(8)]
        )
        assert sum(isinstance(answer, Acquired) for answer in answers) == 1

    # continue-as-new and lineage

    def test_a_continued_execution_ends_and_the_next_of_its_line_begins(self, store):
        worker = started(store)
        again = next_of_line(worker.execution)
        worker.finish(Status.CONTINUED, children=(again,))
        assert worker.execution.status is Status.CONTINUED
        following = store.get(again.execution_id)
        assert (following.status, following.lineage_id) == (Status.ACTIVE, worker.execution_id)
        assert (following.epoch, following.parent_id) == (0, None)

    def test_a_lineage_is_the_whole_family_oldest_first(self, store):
        first = started(store)
        first.fan_out(2)
        one, two = children(store, first)
        nested = Worker.take(store, one.execution_id)
        nested.fan_out(1)
        (leaf,) = children(store, nested)
        run_child(store, leaf)
        rejoin(store, nested).finish()
        run_child(store, two)
        again = next_of_line(first.execution)
        rejoin(store, first).finish(Status.CONTINUED, children=(again,))
        started(store)
        family = [execution.execution_id for execution in store.lineage(first.execution_id)]
        assert family == [
            first.execution_id,
            one.execution_id,
            two.execution_id,
            leaf.execution_id,
            again.execution_id,
        ]
        assert store.lineage(again.execution_id) == store.lineage(first.execution_id)
        assert store.lineage(new_execution().execution_id) == []

    # compensation

    def test_entering_compensation_raises_the_owners_epoch_and_keeps_the_owner(self, store):
        worker = started(store)
        worker.commit("prepare")
        before = worker.token()
        entry = worker.compensate()
        now = worker.execution
        assert (now.status, now.phase) == (Status.ACTIVE, Phase.COMPENSATING)
        assert (now.epoch, now.owner) == (2, worker.owner)
        assert entry.epoch == 1
        late = replace(worker.extension("stage"), token=before)
        with pytest.raises(ExecutionLeaseLostError):
            store.commit(late)
        worker.commit("prepare", kind=CheckpointKind.UNDO, phase=Phase.COMPENSATING)
        assert worker.execution.phase is Phase.COMPENSATING
        trail = names(store, worker.execution_id)
        assert trail.count(EventName.EPOCH_RAISED) == trail.count(EventName.COMPENSATING) == 1

    def test_a_raised_epoch_tells_after_which_checkpoint(self, store):
        worker = started(store)
        worker.commit("prepare")
        entry = worker.compensate()
        (raised,) = (
            event
            for event in store.events([worker.execution_id])
            if event.name == EventName.EPOCH_RAISED
        )
        assert (
            raised.details.items()
            >= {"by": str(worker.execution_id), "head_seq": entry.seq}.items()
        )

    def test_a_repeated_entry_raises_no_epoch_twice(self, store):
        worker = started(store)
        commit = worker.extension(
            "gate",
            FAILURE,
            kind=CheckpointKind.COMPENSATING,
            phase=Phase.COMPENSATING,
            raise_epochs=True,
        )
        entry = store.commit(commit)
        assert store.commit(commit) == entry
        assert worker.execution.epoch == 2

    def test_every_descendant_is_raised_and_owned_by_nobody(self, store):
        parent = started(store)
        parent.fan_out(2)
        done, nesting = children(store, parent)
        run_child(store, done)
        nested = Worker.take(store, nesting.execution_id)
        nested.fan_out(1)
        (leaf,) = children(store, nested)
        run_child(store, leaf)
        rejoin(store, nested).finish()
        epochs = {e.execution_id: e.epoch for e in store.lineage(parent.execution_id)}
        parent = rejoin(store, parent)
        parent.compensate()
        for child in (done, nesting, leaf):
            now = store.get(child.execution_id)
            assert now.epoch == epochs[child.execution_id] + 1
            assert (now.owner, now.phase) == (None, Phase.COMPENSATING)
            assert now.status is Status.SUCCEEDED
            raised = store.events([child.execution_id])[-1]
            assert (raised.name, raised.epoch) == (EventName.EPOCH_RAISED, now.epoch)
            assert raised.details["head_seq"] == now.head_seq
            assert raised.details == {
                "by": str(parent.execution_id),
                "head_seq": now.head_seq,
                "from_owner": None,
            }

    def test_live_descendants_are_fenced_and_wait_for_their_parent(self, store, ledger):
        # The engine joins before it compensates; a cancelled parent could not wait for that.
        parent = started(store)
        parent.commit("modules", kind=CheckpointKind.FAN_OUT, children=self._four(parent))
        running, handed_back, queued, parked = children(store, parent)
        zombie = Worker.take(store, running.execution_id)
        store.hand_back(Worker.take(store, handed_back.execution_id).token(), NOW)
        store.park(Worker.take(store, parked.execution_id).token(), "why", None)
        parent.compensate()
        with pytest.raises(ExecutionLeaseLostError):
            zombie.commit("stage")
        late = zombie.extension("stage")
        with pytest.raises(StaleLeaseFenceError), store.transaction(late.token) as transaction:
            transaction.commit(late)
        assert statuses(children(store, parent)) == [Status.WAITING] * 4
        for child in children(store, parent):
            assert (child.owner, child.phase) == (None, Phase.COMPENSATING)
            refused = store.acquire(child.execution_id, "early", child.epoch + 1, LATER)
            assert refused == Refused(Status.WAITING, child.epoch)
        assert store.claim_due(10, LATER) == []
        assert store.claim_waiting(10, LATER) == []
        parent.undo_fan_out()
        assert statuses(children(store, parent)) == [Status.ACTIVE] * 4
        assert queued.execution_id in {e.execution_id for e in store.claim_due(10, LATER)}

    @staticmethod
    def _four(parent: Worker):
        me = parent.execution
        order = [Status.ACTIVE, Status.ACTIVE, Status.QUEUED, Status.ACTIVE]
        return tuple(child_of(me, i, status=status) for i, status in enumerate(order))

    def test_a_raised_child_does_not_join_its_own_fan_out_any_more(self, store):
        parent = started(store)
        parent.commit("modules", kind=CheckpointKind.FAN_OUT, children=self._four(parent)[:1])
        (child,) = children(store, parent)
        middle = Worker.take(store, child.execution_id)
        middle.fan_out(1, due_in=NOW)
        run_child(store, children(store, middle)[0])
        parent.compensate()
        now = middle.execution
        assert isinstance(
            store.acquire(middle.execution_id, "early", now.epoch + 1, LATER), Refused
        )
        assert store.claim_waiting(10, LATER) == []

    def test_children_undo_what_they_had_completed(self, store):
        parent = failed_family(store)
        parent.undo_fan_out()
        undoing = children(store, parent)
        assert statuses(undoing) == [Status.ACTIVE] * 3
        assert all(child.phase is Phase.COMPENSATING for child in undoing)
        assert all(child.ended_at is None for child in undoing)
        due = eventually(lambda: store.claim_due(10, LATER))
        assert {e.execution_id for e in due} == {child.execution_id for child in undoing}
        assert isinstance(store.acquire(parent.execution_id, "early", 9, LATER), Refused)
        for child in undoing:
            worker = Worker.take(store, child.execution_id)
            assert worker.execution.recoveries == 0
            worker.commit("prepare", kind=CheckpointKind.UNDO, phase=Phase.COMPENSATING)
            worker.finish(Status.COMPENSATED, phase=Phase.COMPENSATING)
        parent = rejoin(store, parent)
        assert parent.execution.phase is Phase.COMPENSATING
        parent.commit("modules", kind=CheckpointKind.UNDO, phase=Phase.COMPENSATING)
        parent.finish(Status.COMPENSATED, phase=Phase.COMPENSATING)

    def test_the_cap_holds_for_undoing_too(self, store):
        parent = failed_family(store, count=5, cap=2)
        parent.undo_fan_out(cap=2)
        undone = 0
        while live := [c for c in children(store, parent) if c.status is Status.ACTIVE]:
            assert len(live) == min(2, 5 - undone)
            run = Worker.take(store, live[0].execution_id)
            run.finish(Status.COMPENSATED, phase=Phase.COMPENSATING)
            undone += 1
            store.admit(parent.execution_id, LATER)
        assert statuses(children(store, parent)) == [Status.COMPENSATED] * 5

    def test_children_that_left_nothing_behind_stay_as_they_are(self, store):
        parent = started(store)
        parent.fan_out(4)
        failed, compensated, continued, succeeded = children(store, parent)
        run_child(store, failed, Status.FAILED)
        run_child(store, compensated, Status.COMPENSATED)
        again = next_of_line(continued)
        Worker.take(store, continued.execution_id).finish(Status.CONTINUED, children=(again,))
        run_child(store, store.get(again.execution_id))
        run_child(store, succeeded)
        parent = rejoin(store, parent)
        parent.compensate()
        parent.undo_fan_out()
        assert store.get(continued.execution_id).status is Status.CONTINUED
        latest = children(store, parent)
        assert [child.execution_id for child in latest][2] == again.execution_id
        assert statuses(latest) == [
            Status.FAILED,
            Status.COMPENSATED,
            Status.ACTIVE,
            Status.ACTIVE,
        ]

    def test_undoing_nothing_is_over_at_once(self, store):
        parent = started(store)
        parent.fan_out(2)
        for child in children(store, parent):
            run_child(store, child, Status.FAILED)
        parent = rejoin(store, parent)
        parent.compensate()
        parent.undo_fan_out(due_in=NOW)
        joinable = eventually(lambda: store.claim_waiting(10, LATER))
        assert [e.execution_id for e in joinable] == [parent.execution_id]
        rejoin(store, parent)

    def test_a_repeated_undo_restarts_nobody(self, store):
        parent = failed_family(store, count=1)
        commit = parent.extension(
            "modules",
            kind=CheckpointKind.UNDO_FAN_OUT,
            phase=Phase.COMPENSATING,
            status=Status.WAITING,
            undo_children_of=("modules", 1),
        )
        entry = store.commit(commit)
        (child,) = children(store, parent)
        worker = Worker.take(store, child.execution_id)
        worker.finish(Status.COMPENSATED, phase=Phase.COMPENSATING)
        assert store.commit(commit) == entry
        assert statuses(children(store, parent)) == [Status.COMPENSATED]
