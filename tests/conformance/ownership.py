"""Starting and owning executions."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest

from fencepost.errors import (
    BusinessKeyConflictError,
    ExecutionLeaseLostError,
    ExecutionNotFoundError,
    ExecutionStateError,
)
from fencepost.records import (
    Acquired,
    CheckpointKind,
    Event,
    EventName,
    Phase,
    Refused,
    Status,
)
from tests.conformance.support import (
    LATER,
    NOW,
    Worker,
    at_once,
    eventually,
    keyed,
    names,
    new_execution,
    new_owner,
    started,
)


class Ownership:
    # create

    def test_a_new_execution_has_a_row_and_the_root_of_a_chain(self, store):
        new = new_execution({"größe": [1, 2.5, None, True], "π": {"nested": ""}})
        execution, made = store.create(new)
        assert made
        assert execution == store.get(new.execution_id)
        assert (execution.status, execution.phase) == (Status.ACTIVE, Phase.FORWARD)
        assert (execution.epoch, execution.owner) == (0, None)
        assert (execution.recoveries, execution.attempt) == (0, 0)
        assert (execution.saga, execution.version) == ("release", "v1")
        assert execution.input == new.input
        assert execution.created_at.utcoffset() == timedelta(0)
        (start,) = store.chain(new.execution_id)
        assert start.kind is CheckpointKind.START
        assert (start.seq, start.parent_checkpoint_id) == (0, None)
        assert (start.checkpoint_id, start.seq) == (execution.head, execution.head_seq)
        assert start.result == new.input
        assert names(store, new.execution_id) == [EventName.STARTED]

    def test_creating_again_finds_what_is_there(self, store):
        new = keyed("order:42", {"a": 1})
        first, _ = store.create(new)
        worker = Worker.take(store, new.execution_id)
        worker.commit()
        again, made = store.create(new)
        assert not made
        assert again == worker.execution != first
        assert len(store.chain(new.execution_id)) == 2
        assert names(store, new.execution_id).count(EventName.STARTED) == 1

    def test_a_key_used_with_another_input_is_a_conflict(self, store):
        first, _ = store.create(keyed("order:42", {"a": 1}))
        with pytest.raises(BusinessKeyConflictError) as caught:
            store.create(keyed("order:42", {"a": 2}))
        assert caught.value.code == "execution.key-conflict"
        assert caught.value.fields == {
            "saga": "release",
            "key": "order:42",
            "execution_id": str(first.execution_id),
        }
        assert store.get(first.execution_id).input == {"a": 1}

    def test_many_starts_of_one_key_make_one_execution(self, store):
        new = keyed("order:42", {"a": 1})
        answers = at_once([lambda: store.create(new)] * 8)
        assert [made for _, made in answers].count(True) == 1
        assert {execution.execution_id for execution, _ in answers} == {new.execution_id}
        assert len(store.chain(new.execution_id)) == 1
        assert names(store, new.execution_id) == [EventName.STARTED]

    def test_starts_of_one_key_with_different_inputs_are_settled_by_the_first(self, store):
        inputs = [{"a": i} for i in range(6)]
        answers = at_once([partial(store.create, keyed("k", value)) for value in inputs])
        won = [answer for answer in answers if isinstance(answer, tuple)]
        lost = [answer for answer in answers if isinstance(answer, BusinessKeyConflictError)]
        assert (len(won), len(lost)) == (1, 5)
        ((execution, made),) = won
        assert made
        assert store.chain(execution.execution_id)[0].result == execution.input

    def test_a_start_joins_the_callers_transaction(self, store, ledger):
        kept, dropped = new_execution(), new_execution()
        with ledger.session() as session:
            execution, made = store.create(kept, session=session)
            assert made
            assert execution.execution_id == kept.execution_id
            assert store.get(kept.execution_id) is None
            session.commit()
        with ledger.session() as session:
            store.create(dropped, session=session)
            session.rollback()
        assert store.get(kept.execution_id).status is Status.ACTIVE
        assert len(store.chain(kept.execution_id)) == 1
        assert names(store, kept.execution_id) == [EventName.STARTED]
        assert store.get(dropped.execution_id) is None
        assert store.chain(dropped.execution_id) == ()

    def test_a_conflict_is_found_in_the_callers_transaction_too(self, store, ledger):
        store.create(keyed("order:42", {"a": 1}))
        with ledger.session() as session:
            _, made = store.create(keyed("order:42", {"a": 1}), session=session)
            assert not made
            with pytest.raises(BusinessKeyConflictError):
                store.create(keyed("order:42", {"a": 2}), session=session)

    def test_what_does_not_exist_is_not_found(self, store):
        assert store.get(uuid4()) is None
        assert store.chain(uuid4()) == ()
        with pytest.raises(ExecutionNotFoundError):
            store.acquire(uuid4(), "a", 1, LATER)
        with pytest.raises(ExecutionNotFoundError):
            store.unpark(uuid4(), "why not")

    # acquire

    def test_the_first_owner_has_epoch_one(self, store):
        execution, _ = store.create(new_execution())
        acquired = store.acquire(execution.execution_id, "a", 1, LATER)
        assert isinstance(acquired, Acquired)
        assert acquired.taken_over_from is None
        assert acquired.execution == store.get(execution.execution_id)
        assert (acquired.execution.epoch, acquired.execution.owner) == (1, "a")
        assert acquired.chain == store.chain(execution.execution_id)
        event = store.events([execution.execution_id])[-1]
        assert (event.name, event.epoch, event.owner) == (EventName.LEASE_ACQUIRED, 1, "a")

    def test_a_takeover_continues_the_same_execution_with_the_next_epoch(self, store):
        worker = started(store)
        worker.commit("prepare", {"ok": True})
        acquired = store.acquire(worker.execution_id, "b", 2, LATER)
        assert isinstance(acquired, Acquired)
        assert acquired.taken_over_from == worker.owner
        assert (acquired.execution.epoch, acquired.execution.owner) == (2, "b")
        assert acquired.execution.recoveries == 1
        assert [entry.seq for entry in acquired.chain] == [0, 1]
        assert acquired.chain[1].result == {"ok": True}
        recovered = store.events([worker.execution_id])[-1]
        assert recovered.name == EventName.RECOVERED
        assert (recovered.epoch, recovered.owner) == (2, "b")
        assert recovered.details["from_owner"] == worker.owner
        # Its place in the chain tells an event's order without comparing clocks.
        assert recovered.details["head_seq"] == 1
        assert store.events([worker.execution_id])[-2].details["head_seq"] == 1

    def test_recoveries_count_up_to_the_next_checkpoint(self, store):
        worker = started(store)
        for expected in (1, 2, 3):
            worker = Worker.take(store, worker.execution_id)
            assert worker.execution.recoveries == expected
        worker.commit()
        assert worker.execution.recoveries == 0

    @pytest.mark.parametrize("proposed", [0, 1])
    def test_a_stale_proposal_is_refused(self, store, proposed):
        worker = started(store)
        before = (store.get(worker.execution_id), store.events([worker.execution_id]))
        refused = store.acquire(worker.execution_id, "late", proposed, LATER)
        assert refused == Refused(Status.ACTIVE, 1)
        assert (store.get(worker.execution_id), store.events([worker.execution_id])) == before

    def test_a_proposal_ahead_of_the_row_wins(self, store):
        worker = started(store)
        acquired = store.acquire(worker.execution_id, "b", 7, LATER)
        assert acquired.execution.epoch == 7
        event = next(e for e in store.events([worker.execution_id]) if e.epoch == 7)
        assert event.details["previous_epoch"] == 1

    def test_an_acquisition_tells_after_which_checkpoint(self, store):
        worker = started(store)
        worker.commit("prepare")
        Worker.take(store, worker.execution_id)
        first, second = (
            event
            for event in store.events([worker.execution_id])
            if event.name == EventName.LEASE_ACQUIRED
        )
        assert (first.details["head_seq"], second.details["head_seq"]) == (0, 1)

    def test_one_of_many_acquires(self, store):
        execution, _ = store.create(new_execution())
        owners = [new_owner() for _ in range(16)]
        answers = at_once(
            [partial(store.acquire, execution.execution_id, o, 1, LATER) for o in owners]
        )
        (won,) = [answer for answer in answers if isinstance(answer, Acquired)]
        lost = [answer for answer in answers if isinstance(answer, Refused)]
        assert lost == [Refused(Status.ACTIVE, 1)] * 15
        now = store.get(execution.execution_id)
        assert (now.owner, now.epoch) == (won.execution.owner, 1)
        assert names(store, execution.execution_id).count(EventName.LEASE_ACQUIRED) == 1

    # hand back, failed attempts, parking

    def test_what_is_handed_back_is_no_recovery_for_the_next_owner(self, store):
        worker = started(store)
        store.hand_back(worker.token(), NOW)
        assert worker.execution.owner is None
        assert worker.execution.epoch == 1
        successor = Worker.take(store, worker.execution_id)
        assert (successor.epoch, successor.execution.recoveries) == (2, 0)
        trail = names(store, worker.execution_id)
        assert EventName.RECOVERED not in trail
        assert EventName.LEASE_RELEASED in trail

    def test_what_is_handed_back_is_due_when_asked(self, store):
        worker, other = started(store), started(store)
        store.hand_back(other.token(), LATER)
        store.hand_back(worker.token(), NOW)
        due = eventually(lambda: store.claim_due(10, LATER))
        assert [execution.execution_id for execution in due] == [worker.execution_id]

    def test_a_failed_attempt_is_counted_and_due_again(self, store):
        worker = started(store)
        store.record_attempt(worker.token(), 1, {"code": "net"}, NOW)
        now = worker.execution
        assert (now.status, now.owner, now.attempt) == (Status.ACTIVE, None, 1)
        assert eventually(lambda: store.claim_due(10, LATER)) == [now]
        event = store.events([worker.execution_id])[-1]
        assert (event.name, event.epoch) == (EventName.ATTEMPT_FAILED, 1)
        assert event.step_key == worker.token().step_key
        assert event.details["attempt"] == 1
        assert event.details["error"] == {"code": "net"}
        successor = Worker.take(store, worker.execution_id)
        assert (successor.execution.attempt, successor.execution.recoveries) == (1, 0)
        successor.commit()
        assert successor.execution.attempt == 0

    def test_a_parked_execution_waits_for_a_person(self, store):
        worker = started(store)
        store.park(worker.token(), "in doubt", {"code": "effect.in-doubt"})
        parked = worker.execution
        assert (parked.status, parked.owner) == (Status.PARKED, None)
        assert parked.parked_reason == "in doubt"
        assert parked.error == {"code": "effect.in-doubt"}
        assert parked.ended_at is None
        assert store.acquire(worker.execution_id, "b", 2, LATER) == Refused(Status.PARKED, 1)
        event = store.events([worker.execution_id])[-1]
        assert (event.name, event.details["reason"]) == (EventName.PARKED, "in doubt")

    def test_an_unparked_execution_goes_on_at_once(self, store):
        worker = started(store)
        worker = Worker.take(store, worker.execution_id)
        store.record_attempt(worker.token(), 2, {}, NOW)
        worker = Worker.take(store, worker.execution_id)
        store.park(worker.token(), "poison", None)
        unparked = store.unpark(worker.execution_id, "the disk is free again")
        assert unparked == worker.execution
        assert (unparked.status, unparked.attempt, unparked.recoveries) == (Status.ACTIVE, 0, 0)
        assert unparked.parked_reason is None
        assert eventually(lambda: store.claim_due(10, LATER)) == [unparked]
        event = store.events([worker.execution_id])[-1]
        assert event.name == EventName.UNPARKED
        assert event.details["why"] == "the disk is free again"
        assert Worker.take(store, worker.execution_id).execution.recoveries == 0

    def test_only_what_is_parked_can_be_unparked(self, store):
        worker = started(store)
        with pytest.raises(ExecutionStateError):
            store.unpark(worker.execution_id, "impatience")
        assert worker.execution.owner == worker.owner

    @pytest.mark.parametrize("operation", ["hand_back", "record_attempt", "park"])
    @pytest.mark.parametrize("how", ["taken over", "handed back"])
    def test_only_the_owner_gives_up(self, store, operation, how):
        worker = started(store)
        if how == "taken over":
            Worker.take(store, worker.execution_id)
        else:
            store.hand_back(worker.token(), LATER)
        before = worker.execution
        give_up = {
            "hand_back": lambda: store.hand_back(worker.token(), NOW),
            "record_attempt": lambda: store.record_attempt(worker.token(), 1, {}, NOW),
            "park": lambda: store.park(worker.token(), "why", {}),
        }
        with pytest.raises(ExecutionLeaseLostError) as caught:
            give_up[operation]()
        assert (caught.value.held, caught.value.current) == (1, before.epoch)
        assert worker.execution == before
        event = store.events([worker.execution_id])[-1]
        assert event.name == EventName.LEASE_LOST
        assert (event.epoch, event.current_epoch) == (1, before.epoch)
        assert (event.owner, event.current_owner) == (worker.owner, before.owner)

    # audit

    def test_events_come_in_order_and_only_the_newer_ones(self, store):
        worker, other = started(store), started(store)
        ids = [worker.execution_id, other.execution_id]
        store.record(
            Event(
                execution_id=worker.execution_id,
                name=EventName.VERSION_UNKNOWN,
                epoch=1,
                details={"version": "v9", "unicode": "é"},
            )
        )
        events = store.events(ids)
        numbers = [event.event_id for event in events]
        assert numbers == sorted(set(numbers))
        assert events[-1].details == {"version": "v9", "unicode": "é"}
        assert events[-1].at.utcoffset() == timedelta(0)
        assert store.events(ids, after=numbers[1]) == events[2:]
        assert {e.execution_id for e in store.events([other.execution_id])} == {other.execution_id}
        assert store.events([]) == []
