"""Turning back: from that moment nobody runs forward any more, at any depth."""

from __future__ import annotations

from functools import partial
from uuid import UUID, uuid4

import pytest

from fencepost.errors import (
    ExecutionLeaseLostError,
    ExecutionNotFoundError,
    ExecutionStateError,
    StaleLeaseFenceError,
)
from fencepost.failure import PARENT_FAILED
from fencepost.ports import ExecutionStore
from fencepost.records import (
    Acquired,
    Checkpoint,
    CheckpointKind,
    EventName,
    Execution,
    Phase,
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
    next_of_line,
    on_record,
    recorded_epochs,
    run_child,
    started,
)
from tests.conformance.transactions import transact

CAUSE = {
    "error_type": "",
    "code": "execution.cancelled",
    "message": "cancelled by ann",
    "details": {"by": "ann"},
}


def cancel(store: ExecutionStore, execution_id: UUID, *, only_forward: bool = False) -> Execution:
    details = {"by": "ann", "why": "wrong order"}
    return store.turn_back(
        execution_id, CAUSE, EventName.CANCELLED, details, only_forward=only_forward
    )


def due(store: ExecutionStore) -> set[UUID]:
    return {execution.execution_id for execution in store.claim_due(10, LATER)}


class Turning:
    def test_its_owner_is_fenced_at_once(self, store, ledger):
        worker = started(store)
        worker.commit("prepare")
        late = worker.extension("stage")
        turned = cancel(store, worker.execution_id)
        assert turned == worker.execution
        assert (turned.status, turned.phase) == (Status.ACTIVE, Phase.COMPENSATING)
        assert (turned.epoch, turned.owner, turned.turned_back) == (2, None, CAUSE)
        with pytest.raises(ExecutionLeaseLostError):
            store.commit(late)
        with pytest.raises(StaleLeaseFenceError):
            transact(store, late, lambda session: ledger.write(session, "late"))
        assert ledger.written() == []
        for give_up in (
            partial(store.hand_back, late.token, NOW),
            partial(store.record_attempt, late.token, 1, {}, NOW),
            partial(store.park, late.token, "why", {}),
        ):
            with pytest.raises(ExecutionLeaseLostError):
                give_up()
        assert eventually(lambda: store.claim_due(10, LATER)) == [turned]

    def test_it_is_on_record_for_people_and_for_the_verifier(self, store):
        worker = started(store)
        worker.commit("prepare")
        cancel(store, worker.execution_id)
        event = on_record(store, worker.execution_id, EventName.CANCELLED)
        assert (event.epoch, event.owner) == (2, None)
        assert event.details == {"by": "ann", "why": "wrong order", "previous_epoch": 1}
        raised = on_record(store, worker.execution_id, EventName.EPOCH_RAISED)
        assert (raised.epoch, raised.owner) == (2, None)
        who = {"by": str(worker.execution_id), "from_owner": worker.owner}
        assert raised.details == who | {"head_seq": 1}
        assert store.get(worker.execution_id).fenced_owner == worker.owner
        assert EventName.COMPENSATING not in names(store, worker.execution_id)
        Worker.take(store, worker.execution_id)
        assert recorded_epochs(store, worker.execution_id) == [1, 2, 3]

    def test_the_cause_stays_until_the_chain_tells_it(self, store):
        worker = started(store)
        cancel(store, worker.execution_id)
        for _ in range(2):
            worker = Worker.take(store, worker.execution_id)
            assert worker.execution.turned_back == CAUSE
        worker.compensate()
        assert worker.execution.turned_back is None
        worker.commit("prepare", kind=CheckpointKind.UNDO, phase=Phase.COMPENSATING)
        worker.finish(Status.COMPENSATED, phase=Phase.COMPENSATING)
        assert worker.execution.phase is Phase.COMPENSATING

    def test_another_commit_keeps_the_cause_and_an_end_drops_it(self, store):
        worker = started(store)
        cancel(store, worker.execution_id)
        worker = Worker.take(store, worker.execution_id)
        worker.commit("prepare", phase=Phase.COMPENSATING)
        assert worker.execution.turned_back == CAUSE
        worker.finish(Status.FAILED, phase=Phase.COMPENSATING)
        assert worker.execution.turned_back is None

    def test_it_tells_whose_lease_counts_for_nothing(self, store):
        parent = started(store)
        parent.fan_out(2)
        first, second = store.children(parent.execution_id, "modules", 1)
        running = Worker.take(store, first.execution_id)
        cancel(store, parent.execution_id)
        assert running.execution.fenced_owner == running.owner
        assert store.get(second.execution_id).fenced_owner is None
        assert parent.execution.fenced_owner is None
        # Twice turned back before anybody came: it is still that owner's lease.
        cancel(store, first.execution_id)
        assert running.execution.fenced_owner == running.owner

    def test_it_begins_anew_to_count(self, store):
        worker = started(store)
        Worker.take(store, worker.execution_id)
        worker = Worker.take(store, worker.execution_id)
        store.record_attempt(worker.token(), 3, {"code": "x"}, LATER)
        turned = cancel(store, worker.execution_id)
        assert (turned.attempt, turned.recoveries, turned.error) == (0, 0, None)
        assert due(store) == {worker.execution_id}

    def test_one_that_compensates_turns_back_again(self, store):
        worker = started(store)
        worker.compensate()
        late = worker.extension("branch", phase=Phase.COMPENSATING)
        turned = cancel(store, worker.execution_id)
        assert (turned.epoch, turned.turned_back) == (3, CAUSE)
        with pytest.raises(ExecutionLeaseLostError):
            store.commit(late)
        worker = Worker.take(store, worker.execution_id)
        worker.compensate(visit=2)
        assert worker.execution.turned_back is None

    def test_a_parked_one_goes_on_backwards(self, store):
        worker = started(store)
        store.park(worker.token(), "in doubt", {"code": "x"})
        turned = cancel(store, worker.execution_id)
        assert (turned.status, turned.parked_reason, turned.error) == (Status.ACTIVE, None, None)
        assert due(store) == {worker.execution_id}

    def test_one_that_waits_waits_no_more(self, store):
        worker = started(store)
        worker.waits(wake_in=LATER, waits_for="approved")
        turned = cancel(store, worker.execution_id)
        assert (turned.status, turned.wake_at, turned.waits_for) == (Status.ACTIVE, None, None)
        assert due(store) == {worker.execution_id}

    def test_a_pause_is_lifted(self, store):
        parent = started(store)
        (child,) = parent.fan_out(1)
        store.pause(parent.execution_id, by="ann", why="lunch")
        assert cancel(store, parent.execution_id).paused_at is None
        assert store.get(child.execution_id).paused_at is None
        assert due(store) == {parent.execution_id}

    @pytest.mark.parametrize("parked", [False, True])
    def test_only_those_on_their_way_forward(self, store, parked):
        worker = started(store)
        assert cancel(store, worker.execution_id, only_forward=True).epoch == 2
        worker = Worker.take(store, worker.execution_id)
        if parked:
            worker = started(store)
            store.park(worker.token(), "why", None)
        before = (worker.execution, store.events([worker.execution_id]))
        assert cancel(store, worker.execution_id, only_forward=True) == before[0]
        assert (worker.execution, store.events([worker.execution_id])) == before

    # refusals

    def test_what_has_ended_or_does_not_exist_stays_as_it_is(self, store):
        with pytest.raises(ExecutionNotFoundError):
            cancel(store, uuid4())
        for status in (Status.SUCCEEDED, Status.FAILED, Status.COMPENSATED):
            worker = started(store)
            worker.finish(status)
            before = worker.execution
            for only_forward in (False, True):
                with pytest.raises(ExecutionStateError) as caught:
                    cancel(store, worker.execution_id, only_forward=only_forward)
                assert str(status) in caught.value.message
                assert caught.value.fields == {
                    "execution_id": str(worker.execution_id),
                    "status": str(status),
                }
            assert worker.execution == before

    def test_past_its_pivot_it_only_goes_forward(self, store):
        worker = started(store)
        worker.commit("charge", phase=Phase.PAST_PIVOT)
        with pytest.raises(ExecutionStateError, match="only goes forward") as caught:
            cancel(store, worker.execution_id)
        assert caught.value.fields["status"] == "active"
        worker.commit("ship", phase=Phase.PAST_PIVOT)

    # the line

    def test_of_a_line_the_last_is_turned_back(self, store):
        worker = started(store)
        again = next_of_line(worker.execution)
        worker.finish(Status.CONTINUED, children=(again,))
        turned = cancel(store, worker.execution_id)
        assert turned.execution_id == again.execution_id
        assert turned.turned_back == CAUSE
        assert worker.execution.phase is Phase.FORWARD
        assert on_record(store, again.execution_id, EventName.CANCELLED).epoch == turned.epoch

    def test_nobody_slips_through_between_two_of_a_line(self, store):
        for _ in range(8):
            worker = started(store)
            again = next_of_line(worker.execution)
            last = worker.extension("ends", status=Status.CONTINUED, children=(again,))
            landed, turned = at_once(
                [partial(store.commit, last), partial(cancel, store, worker.execution_id)]
            )
            assert turned.phase is Phase.COMPENSATING
            latest = (
                again.execution_id if isinstance(landed, Checkpoint) else last.token.execution_id
            )
            assert turned.execution_id == latest
            if not isinstance(landed, Checkpoint):
                assert isinstance(landed, ExecutionLeaseLostError)
                assert store.get(again.execution_id) is None

    def test_no_child_slips_through_while_it_is_continued(self, store):
        for _ in range(8):
            parent = started(store)
            (child,) = parent.fan_out(1)
            worker = Worker.take(store, child.execution_id)
            again = next_of_line(worker.execution)
            last = worker.extension("ends", status=Status.CONTINUED, children=(again,))
            landed, turned = at_once(
                [partial(store.commit, last), partial(cancel, store, parent.execution_id)]
            )
            assert isinstance(turned, Execution), turned
            (latest,) = store.children(parent.execution_id, "modules", 1)
            assert (latest.status, latest.phase) == (Status.WAITING, Phase.COMPENSATING)
            assert (latest.execution_id == again.execution_id) == isinstance(landed, Checkpoint)

    # families

    def test_three_levels_are_turned_at_once(self, store):
        root = started(store)
        root.fan_out(2)
        done, nesting = store.children(root.execution_id, "modules", 1)
        run_child(store, done)
        middle = Worker.take(store, nesting.execution_id)
        middle.fan_out(2, cap=1)
        running, queued = store.children(middle.execution_id, "modules", 1)
        leaf = Worker.take(store, running.execution_id)
        epochs = {e.execution_id: e.epoch for e in store.lineage(root.execution_id)}

        turned = cancel(store, root.execution_id)
        assert (turned.status, turned.turned_back) == (Status.ACTIVE, CAUSE)
        with pytest.raises(ExecutionLeaseLostError):
            leaf.commit("stage")
        for before in (done, nesting, running, queued):
            now = store.get(before.execution_id)
            assert (now.owner, now.phase) == (None, Phase.COMPENSATING)
            assert now.turned_back == PARENT_FAILED
            ended = before is done
            assert now.status is (Status.SUCCEEDED if ended else Status.WAITING)
            assert not acquirable(store, before.execution_id)
            raised = on_record(store, before.execution_id, EventName.EPOCH_RAISED)
            assert (
                raised.details.items()
                >= {"by": str(root.execution_id), "head_seq": now.head_seq}.items()
            )
            assert EventName.CANCELLED not in names(store, before.execution_id)
        for member in store.lineage(root.execution_id):
            assert member.epoch == epochs[member.execution_id] + 1
            recorded = recorded_epochs(store, member.execution_id)
            assert recorded == list(range(1, member.epoch + 1))
        assert due(store) == {root.execution_id}

    def test_a_running_child_keeps_its_place(self, store):
        parent = started(store)
        parent.fan_out(3, cap=1)
        first, second, _ = store.children(parent.execution_id, "modules", 1)
        late = Worker.take(store, first.execution_id)
        turned = cancel(store, first.execution_id)
        assert turned.status is Status.ACTIVE
        assert store.get(second.execution_id).status is Status.QUEUED
        with pytest.raises(ExecutionLeaseLostError):
            late.commit("stage")
        assert due(store) == {first.execution_id}
        assert parent.execution.phase is Phase.FORWARD

    @pytest.mark.parametrize("state", ["queued", "parked"])
    def test_a_child_without_a_place_takes_its_turn(self, store, state):
        parent = started(store)
        parent.fan_out(2, cap=1)
        first, second = store.children(parent.execution_id, "modules", 1)
        if state == "parked":
            store.park(Worker.take(store, first.execution_id).token(), "why", None)
            store.admit(parent.execution_id, LATER)
            first, second = second, first
        turned = cancel(store, second.execution_id)
        assert (turned.status, turned.phase) == (Status.QUEUED, Phase.COMPENSATING)
        run_child(store, store.get(first.execution_id))
        (admitted,) = store.admit(parent.execution_id, LATER)
        assert (admitted.execution_id, admitted.turned_back) == (second.execution_id, CAUSE)

    def test_a_parked_child_whose_place_is_free_is_due_at_once(self, store):
        parent = started(store)
        parent.fan_out(1, cap=1)
        (child,) = store.children(parent.execution_id, "modules", 1)
        store.park(Worker.take(store, child.execution_id).token(), "why", None)
        assert cancel(store, child.execution_id).status is Status.ACTIVE
        assert due(store) == {child.execution_id}

    def test_a_child_that_waits_for_its_parents_turn_goes_on_waiting(self, store):
        parent = started(store)
        (child,) = parent.fan_out(1)
        cancel(store, parent.execution_id)
        before = store.get(child.execution_id)
        turned = cancel(store, child.execution_id)
        assert (turned.status, turned.epoch) == (Status.WAITING, before.epoch + 1)
        assert not acquirable(store, child.execution_id)
        assert due(store) == {parent.execution_id}
        parent = Worker.take(store, parent.execution_id)
        parent.compensate()
        parent.undo_fan_out()
        assert acquirable(store, child.execution_id)

    def test_a_late_joiner_of_a_raised_child_is_refused(self, store):
        # It undoes its own fan-out already when its parent turns it back once more.
        parent = started(store)
        parent.commit(
            "modules", kind=CheckpointKind.FAN_OUT, children=(child_of(parent.execution, 0),)
        )
        (child,) = store.children(parent.execution_id, "modules", 1)
        middle = Worker.take(store, child.execution_id)
        middle.fan_out(1)
        run_child(store, store.children(middle.execution_id, "modules", 1)[0], Status.FAILED)
        middle = Worker.take(store, middle.execution_id)
        middle.compensate()
        middle.undo_fan_out()
        parent.compensate()
        assert middle.execution.status is Status.WAITING
        assert not acquirable(store, middle.execution_id)

    # races

    def test_a_turn_and_a_commit_exclude_each_other_or_follow(self, store):
        for _ in range(10):
            worker = started(store)
            committed, turned = at_once(
                [
                    partial(store.commit, worker.extension("stage")),
                    partial(cancel, store, worker.execution_id),
                ]
            )
            raised = on_record(store, worker.execution_id, EventName.EPOCH_RAISED)
            landed = isinstance(committed, Checkpoint)
            assert landed or isinstance(committed, ExecutionLeaseLostError)
            assert raised.details["head_seq"] == turned.head_seq == int(landed)

    def test_no_child_is_begun_after_its_parent_was_turned(self, store):
        for _ in range(8):
            parent = started(store)
            commit = parent.extension(
                "modules",
                kind=CheckpointKind.FAN_OUT,
                status=Status.WAITING,
                children=tuple(child_of(parent.execution, index) for index in range(3)),
            )
            landed, turned = at_once(
                [partial(store.commit, commit), partial(cancel, store, parent.execution_id)]
            )
            assert isinstance(turned, Execution), turned
            made = store.children(parent.execution_id, "modules", 1)
            assert len(made) == (3 if isinstance(landed, Checkpoint) else 0)
            assert all(child.phase is Phase.COMPENSATING for child in made)

    def test_turning_and_acquiring_leave_one_who_knows(self, store):
        for _ in range(8):
            worker = started(store)
            acquired, turned = at_once(
                [
                    partial(store.acquire, worker.execution_id, "b", 2, LATER),
                    partial(cancel, store, worker.execution_id),
                ]
            )
            assert turned.phase is Phase.COMPENSATING
            now = worker.execution
            if isinstance(acquired, Acquired) and acquired.execution.phase is Phase.FORWARD:
                assert (now.epoch, now.owner) == (3, None)
            recorded = recorded_epochs(store, worker.execution_id)
            assert recorded == list(range(1, now.epoch + 1))

    def test_families_are_turned_from_several_sides_at_once(self, store):
        for _ in range(4):
            root = started(store)
            root.fan_out(2)
            one, two = store.children(root.execution_id, "modules", 1)
            middle = Worker.take(store, one.execution_id)
            middle.fan_out(2)
            leaf, _ = store.children(middle.execution_id, "modules", 1)
            targets = (root.execution_id, one.execution_id, leaf.execution_id, two.execution_id)
            answers = at_once(
                [
                    *(partial(cancel, store, target) for target in targets),
                    partial(store.pause, root.execution_id, by="ann", why="w"),
                    partial(store.admit, root.execution_id, LATER),
                ]
            )
            assert not [answer for answer in answers if isinstance(answer, Exception)], answers
            for member in store.lineage(root.execution_id):
                assert member.phase is Phase.COMPENSATING
                recorded = recorded_epochs(store, member.execution_id)
                assert recorded == list(range(1, member.epoch + 1))
