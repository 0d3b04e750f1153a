"""What people decide: pausing, going on after parking, going on after a failure."""

from __future__ import annotations

from functools import partial
from uuid import UUID, uuid4

import pytest

from fencepost.errors import ExecutionNotFoundError, ExecutionStateError
from fencepost.ports import ExecutionStore
from fencepost.records import (
    Checkpoint,
    CheckpointKind,
    EventName,
    Execution,
    Phase,
    Refused,
    Status,
)
from tests.conformance.support import (
    LATER,
    NOW,
    Worker,
    acquirable,
    at_once,
    child_of,
    eventually,
    names,
    new_execution,
    next_of_line,
    on_record,
    run_child,
    signal_for,
    started,
)

SKIP = {"do": "skip", "step": "stage", "visit": 1, "by": "ann", "why": "done by hand"}


def pause(store: ExecutionStore, execution_id: UUID) -> Execution:
    return store.pause(execution_id, by="ann", why="lunch")


def resume(store: ExecutionStore, execution_id: UUID) -> list[Execution]:
    return store.resume(execution_id, by="bob", why="coffee")


def ids(executions: list[Execution]) -> list[UUID]:
    return [execution.execution_id for execution in executions]


class Deciding:
    # pause

    def test_what_is_paused_is_not_begun_and_what_runs_runs_on(self, store):
        worker = started(store)
        paused = pause(store, worker.execution_id)
        assert paused == worker.execution
        assert paused.paused_at is not None
        assert (paused.status, paused.epoch, paused.owner) == (Status.ACTIVE, 1, worker.owner)
        assert store.acquire(worker.execution_id, "b", 2, LATER) == Refused(Status.ACTIVE, 1)
        worker.commit("stage")
        assert worker.execution.paused_at == paused.paused_at
        store.hand_back(worker.token(), NOW)
        assert store.claim([worker.execution_id], LATER) == []
        assert store.claim_due(10, LATER) == []
        event = on_record(store, worker.execution_id, EventName.PAUSED)
        assert (event.epoch, event.owner) == (1, None)
        assert event.details == {"by": "ann", "why": "lunch"}

    def test_pausing_twice_changes_nothing(self, store):
        worker = started(store)
        before = pause(store, worker.execution_id)
        assert pause(store, worker.execution_id) == before
        assert names(store, worker.execution_id).count(EventName.PAUSED) == 1

    def test_a_family_is_paused_with_its_root(self, store):
        root = started(store)
        root.fan_out(3, cap=2, due_in=NOW)
        done, nesting, queued = store.children(root.execution_id, "modules", 1)
        middle = Worker.take(store, nesting.execution_id)
        middle.fan_out(1, due_in=NOW)
        (leaf,) = store.children(middle.execution_id, "modules", 1)
        run_child(store, done)
        run_child(store, leaf)
        pause(store, root.execution_id)
        moments = {store.get(e.execution_id).paused_at for e in (nesting, queued)}
        assert moments == {root.execution.paused_at}
        assert store.get(done.execution_id).paused_at is None
        # The middle one could be joined, and the root has a place for the queued one.
        assert store.claim_waiting(10, LATER) == []
        assert store.admit(root.execution_id, LATER) == []
        assert not acquirable(store, middle.execution_id)

    def test_a_paused_wait_is_not_woken(self, store, passed):
        worker = started(store)
        worker.waits(wake_in=LATER, waits_for="approved")
        pause(store, worker.execution_id)
        passed(worker.execution_id, "wake_at")
        store.send_signal(signal_for(worker.execution_id))
        assert store.claim_waiting(10, LATER) == []
        assert not acquirable(store, worker.execution_id)
        (found,) = resume(store, worker.execution_id)
        assert found == worker.execution
        assert found.paused_at is None
        assert acquirable(store, worker.execution_id)

    def test_children_of_a_paused_parent_are_paused_from_the_start(self, store):
        parent = started(store)
        paused_at = pause(store, parent.execution_id).paused_at
        parent.fan_out(2, cap=1)
        made = store.children(parent.execution_id, "modules", 1)
        assert [child.paused_at for child in made] == [paused_at] * 2
        assert not acquirable(store, made[0].execution_id)
        assert store.claim(ids(made), LATER) == []
        assert ids(resume(store, parent.execution_id)) == [made[0].execution_id]
        assert acquirable(store, made[0].execution_id)

    def test_so_is_what_continues_a_paused_execution(self, store):
        worker = started(store)
        pause(store, worker.execution_id)
        again = next_of_line(worker.execution)
        worker.finish(Status.CONTINUED, children=(again,))
        assert store.get(again.execution_id).paused_at is not None
        assert ids(resume(store, again.execution_id)) == [again.execution_id]

    def test_children_undo_nothing_while_their_parent_is_paused(self, store):
        parent = started(store)
        parent.fan_out(1)
        run_child(store, store.children(parent.execution_id, "modules", 1)[0])
        parent = Worker.take(store, parent.execution_id)
        pause(store, parent.execution_id)
        parent.compensate()
        parent.undo_fan_out(due_in=NOW)
        (child,) = store.children(parent.execution_id, "modules", 1)
        assert not acquirable(store, child.execution_id)
        assert store.claim_due(10, LATER) == store.claim_waiting(10, LATER) == []
        resume(store, parent.execution_id)
        store.admit(parent.execution_id, NOW)
        assert acquirable(store, child.execution_id)

    def test_no_child_slips_through_a_pause(self, store):
        for _ in range(8):
            parent = started(store)
            commit = parent.extension(
                "modules",
                kind=CheckpointKind.FAN_OUT,
                status=Status.WAITING,
                children=(child_of(parent.execution, 0),),
            )
            landed, paused = at_once(
                [partial(store.commit, commit), partial(pause, store, parent.execution_id)]
            )
            assert isinstance(landed, Checkpoint), landed
            assert isinstance(paused, Execution), paused
            (child,) = store.children(parent.execution_id, "modules", 1)
            assert child.paused_at is not None

    def test_a_paused_child_leaves_the_others_alone(self, store):
        parent = started(store)
        parent.fan_out(3, cap=1)
        first, second, third = store.children(parent.execution_id, "modules", 1)
        pause(store, second.execution_id)
        assert parent.execution.paused_at is None
        run_child(store, first)
        assert ids(store.admit(parent.execution_id, LATER)) == [third.execution_id]
        resume(store, second.execution_id)
        run_child(store, third)
        assert ids(store.admit(parent.execution_id, LATER)) == [second.execution_id]

    def test_what_has_ended_or_does_not_exist_is_not_paused(self, store):
        with pytest.raises(ExecutionNotFoundError):
            pause(store, uuid4())
        worker = started(store)
        worker.finish()
        with pytest.raises(ExecutionStateError) as caught:
            pause(store, worker.execution_id)
        assert caught.value.fields["status"] == "succeeded"
        assert EventName.PAUSED not in names(store, worker.execution_id)

    # resume

    def test_what_was_waiting_for_a_worker_is_due_at_once(self, store):
        worker = started(store)
        store.hand_back(worker.token(), LATER)
        store.pause(worker.execution_id, by="ann", why="lunch")
        (found,) = resume(store, worker.execution_id)
        assert found == worker.execution
        assert found.paused_at is None
        assert ids(store.claim_due(10, LATER)) == [worker.execution_id]
        event = on_record(store, worker.execution_id, EventName.RESUMED)
        assert event.details == {"by": "bob", "why": "coffee"}

    def test_a_failed_attempt_waits_as_long_as_it_would_have(self, store):
        worker = started(store)
        store.record_attempt(worker.token(), 1, {}, LATER)
        pause(store, worker.execution_id)
        assert resume(store, worker.execution_id) == []
        assert store.claim_due(10, LATER) == []

    def test_one_that_was_asked_for_just_before_is_asked_for_again(self, store):
        worker = started(store)
        store.record_attempt(worker.token(), 1, {}, NOW)
        eventually(lambda: store.claim_due(10, LATER))
        pause(store, worker.execution_id)
        assert ids(resume(store, worker.execution_id)) == [worker.execution_id]

    def test_an_owner_that_has_run_on_is_left_alone(self, store):
        worker = started(store)
        pause(store, worker.execution_id)
        worker.commit("stage")
        assert resume(store, worker.execution_id) == []
        worker.commit("gate")
        assert store.claim_due(10, LATER) == []

    def test_a_family_goes_on_with_its_root(self, store):
        root = started(store)
        root.fan_out(3, cap=2, due_in=NOW)
        first, second, queued = store.children(root.execution_id, "modules", 1)
        store.pause(second.execution_id, by="bob", why="earlier")
        pause(store, root.execution_id)
        assert ids(resume(store, root.execution_id)) == [first.execution_id, second.execution_id]
        for member in store.lineage(root.execution_id):
            assert member.paused_at is None
        run_child(store, first)
        assert ids(store.admit(root.execution_id, LATER)) == [queued.execution_id]

    def test_only_what_is_paused_is_resumed(self, store):
        with pytest.raises(ExecutionNotFoundError):
            resume(store, uuid4())
        worker = started(store)
        with pytest.raises(ExecutionStateError):
            resume(store, worker.execution_id)
        pause(store, worker.execution_id)
        worker.finish()
        with pytest.raises(ExecutionStateError):
            resume(store, worker.execution_id)
        assert EventName.RESUMED not in names(store, worker.execution_id)

    # unpark

    def test_a_directive_stays_until_the_next_commit(self, store):
        worker = started(store)
        store.park(worker.token(), "in doubt", None)
        unparked = store.unpark(worker.execution_id, "done by hand", by="ann", directive=SKIP)
        assert unparked.directive == SKIP
        event = on_record(store, worker.execution_id, EventName.UNPARKED)
        assert event.details == {
            "why": "done by hand",
            "by": "ann",
            "reason": "in doubt",
            "directive": SKIP,
        }
        for _ in range(2):
            worker = Worker.take(store, worker.execution_id)
            assert worker.execution.directive == SKIP
        worker.commit("stage")
        assert worker.execution.directive is None

    def test_one_without_a_directive_runs_its_step_again(self, store):
        worker = started(store)
        store.park(worker.token(), "poison", None)
        assert store.unpark(worker.execution_id, "mended", by="ann").directive is None

    def test_a_directive_is_void_once_the_execution_is_turned_back(self, store):
        worker = started(store)
        store.park(worker.token(), "poison", None)
        store.unpark(worker.execution_id, "mended", directive=SKIP)
        turned = store.turn_back(worker.execution_id, {"code": "x"}, EventName.CANCELLED, {})
        assert turned.directive is None

    # reopen

    def test_a_failed_execution_goes_on(self, store):
        worker = started(store)
        worker.compensate()
        worker.finish(Status.FAILED, phase=Phase.COMPENSATING, error={"code": "x"})
        reopened = store.reopen(worker.execution_id, by="ann", why="mended")
        assert reopened == worker.execution
        assert (reopened.status, reopened.phase) == (Status.ACTIVE, Phase.COMPENSATING)
        assert (reopened.ended_at, reopened.error, reopened.result) == (None, None, None)
        assert reopened.directive == {"do": "reopen", "by": "ann", "why": "mended"}
        assert (reopened.epoch, reopened.turned_back) == (2, None)
        event = on_record(store, worker.execution_id, EventName.REOPENED)
        assert (event.epoch, event.details) == (2, {"by": "ann", "why": "mended"})
        assert store.claim_due(10, LATER) == [reopened]
        worker = Worker.take(store, worker.execution_id)
        assert worker.execution.recoveries == 0
        worker.commit("gate", kind=CheckpointKind.REOPENED)
        now = worker.execution
        assert (now.phase, now.directive) == (Phase.FORWARD, None)

    def test_a_deadline_that_has_passed_does_not_turn_it_back_again(self, store, passed):
        worker = started(store, new_execution(deadline_in=LATER))
        worker.finish(Status.FAILED)
        assert store.reopen(worker.execution_id, by="a", why="w").deadline_at is not None
        worker = Worker.take(store, worker.execution_id)
        worker.finish(Status.FAILED, visit=2)
        passed(worker.execution_id, "deadline_at")
        assert store.reopen(worker.execution_id, by="a", why="w").deadline_at is None
        assert store.overdue(10) == []

    @pytest.mark.parametrize("status", [None, Status.SUCCEEDED, Status.COMPENSATED])
    def test_only_a_failed_one_is_reopened(self, store, status):
        worker = started(store)
        if status is not None:
            worker.finish(status)
        before = worker.execution
        with pytest.raises(ExecutionStateError) as caught:
            store.reopen(worker.execution_id, by="ann", why="w")
        assert caught.value.fields["status"] == str(status or Status.ACTIVE)
        assert worker.execution == before
        with pytest.raises(ExecutionNotFoundError):
            store.reopen(uuid4(), by="ann", why="w")

    def test_a_failed_child_stays_ended(self, store):
        parent = started(store)
        parent.fan_out(1)
        (child,) = store.children(parent.execution_id, "modules", 1)
        run_child(store, child, Status.FAILED)
        with pytest.raises(ExecutionStateError, match="parent"):
            store.reopen(child.execution_id, by="ann", why="w")
        assert store.get(child.execution_id).status is Status.FAILED
