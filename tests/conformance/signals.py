"""Signals: stored once, taken once, and none that wakes nobody."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import UUID, uuid4

import pytest

from fencepost.errors import (
    CheckpointForkError,
    ExecutionNotFoundError,
    ExecutionStateError,
)
from fencepost.records import (
    Checkpoint,
    CheckpointKind,
    Commit,
    EventName,
    SentSignal,
    Status,
)
from tests.conformance.support import (
    LATER,
    NOW,
    Worker,
    acquirable,
    at_once,
    names,
    next_of_line,
    on_record,
    signal_for,
    started,
)


def ids(signals: list[SentSignal]) -> list[UUID]:
    return [signal.signal_id for signal in signals]


def take(worker: Worker, signal: SentSignal, *, visit: int = 1) -> Commit:
    """The commit with which a woken worker takes a signal."""
    return worker.extension(
        "approval",
        signal.payload,
        kind=CheckpointKind.WOKEN,
        visit=visit,
        consumes=signal.signal_id,
    )


class Signals:
    # sending

    def test_a_signal_is_kept_until_somebody_waits_for_it(self, store):
        worker = started(store)
        new = signal_for(worker.execution_id, payload={"größe": [1, None]}, by="ann")
        sent, made = store.send_signal(new)
        assert made
        assert (sent.signal_id, sent.execution_id) == (new.signal_id, worker.execution_id)
        assert (sent.name, sent.payload, sent.by) == ("approved", {"größe": [1, None]}, "ann")
        assert (sent.key, sent.consumed_by, sent.rejected) == (None, None, None)
        assert sent.sent_at >= worker.execution.created_at
        assert store.pending_signals(worker.execution_id, "approved") == [sent]
        assert store.pending_signals(worker.execution_id, "other") == []
        event = on_record(store, worker.execution_id, EventName.SIGNAL_SENT)
        assert event.epoch == 1
        assert event.details == {
            "signal_id": str(new.signal_id),
            "name": "approved",
            "by": "ann",
            "key": None,
        }

    def test_the_oldest_comes_first(self, store):
        worker = started(store)
        sent = [store.send_signal(signal_for(worker.execution_id))[0] for _ in range(4)]
        assert store.pending_signals(worker.execution_id, "approved") == sent

    def test_a_key_is_used_once_for_each_name(self, store):
        worker = started(store)
        first, made = store.send_signal(signal_for(worker.execution_id, key="k"))
        assert made
        again, made = store.send_signal(signal_for(worker.execution_id, key="k", payload=2))
        assert (again, made) == (first, False)
        _, made = store.send_signal(signal_for(worker.execution_id, "other", key="k"))
        assert made
        _, made = store.send_signal(signal_for(started(store).execution_id, key="k"))
        assert made
        assert names(store, worker.execution_id).count(EventName.SIGNAL_SENT) == 2

    def test_a_repeated_sending_stores_nothing(self, store):
        worker = started(store)
        new = signal_for(worker.execution_id)
        answers = at_once([partial(store.send_signal, new)] * 6)
        assert sorted(made for _, made in answers) == [False] * 5 + [True]
        assert ids(store.pending_signals(worker.execution_id, "approved")) == [new.signal_id]

    def test_a_key_stays_used_when_its_signal_was_taken_or_the_execution_has_ended(self, store):
        worker = started(store)
        sent, _ = store.send_signal(signal_for(worker.execution_id, key="k"))
        worker.waits(waits_for="approved")
        worker = Worker.take(store, worker.execution_id)
        worker.landed(store.commit(take(worker, sent)))
        worker.finish()
        again, made = store.send_signal(signal_for(worker.execution_id, key="k"))
        assert not made
        assert again.signal_id == sent.signal_id
        assert again.consumed_by == worker.token("approval").step_key

    def test_what_has_ended_takes_no_signals(self, store):
        worker = started(store)
        worker.finish()
        with pytest.raises(ExecutionStateError) as caught:
            store.send_signal(signal_for(worker.execution_id))
        assert caught.value.fields == {
            "execution_id": str(worker.execution_id),
            "status": "succeeded",
        }
        with pytest.raises(ExecutionNotFoundError):
            store.send_signal(signal_for(uuid4()))

    # waking

    def test_a_signal_wakes_whoever_waits_for_it(self, store):
        worker = started(store)
        worker.waits(waits_for="approved")
        assert (worker.execution.waits_for, worker.execution.wake_at) == ("approved", None)
        assert not acquirable(store, worker.execution_id)
        store.send_signal(signal_for(worker.execution_id, "other"))
        assert not acquirable(store, worker.execution_id)
        assert store.claim_waiting(10, LATER) == []
        store.send_signal(signal_for(worker.execution_id))
        (found,) = store.claim_waiting(10, LATER)
        assert found == worker.execution
        assert acquirable(store, worker.execution_id)

    def test_a_signal_wakes_nobody_else(self, store):
        worker, other, later = started(store), started(store), started(store)
        later.waits(wake_in=LATER, waits_for="approved")
        other.waits(waits_for="approved")
        worker.waits(waits_for="approved")
        store.send_signal(signal_for(worker.execution_id))
        for waiting in (other, later):
            assert not acquirable(store, waiting.execution_id)
            store.defer(waiting.execution_id, 1, NOW)
        assert store.claim_waiting(10, LATER) == [worker.execution]

    def test_a_signal_that_is_there_already_ends_a_wait_at_once(self, store):
        for wake_in in (None, LATER):
            worker = started(store)
            store.send_signal(signal_for(worker.execution_id))
            worker.waits(waits_for="approved", wake_in=wake_in)
            assert worker.execution.status is Status.WAITING
            (found,) = store.claim_waiting(10, LATER)
            assert found.execution_id == worker.execution_id
            assert acquirable(store, worker.execution_id)

    def test_a_signal_ends_a_wait_that_has_time_left(self, store):
        worker = started(store)
        worker.waits(waits_for="approved", wake_in=LATER)
        store.send_signal(signal_for(worker.execution_id))
        (found,) = store.claim_waiting(10, LATER)
        assert found.execution_id == worker.execution_id

    def test_no_wake_up_is_lost_between_a_signal_and_a_wait(self, store):
        for _ in range(12):
            worker = started(store)
            landed, sent = at_once(
                [
                    partial(store.commit, worker.wait(waits_for="approved")),
                    partial(store.send_signal, signal_for(worker.execution_id)),
                ]
            )
            assert isinstance(landed, Checkpoint), landed
            assert sent[1], sent
            (found,) = store.claim_waiting(10, LATER)
            assert found.execution_id == worker.execution_id
            assert acquirable(store, worker.execution_id)

    def test_a_signal_to_one_that_runs_disturbs_nobody(self, store):
        worker = started(store)
        before = worker.execution
        store.send_signal(signal_for(worker.execution_id))
        assert worker.execution == before
        assert store.claim_due(10, LATER) == store.claim_waiting(10, LATER) == []
        worker.commit("stage")

    # taking

    def test_a_taken_signal_is_pending_no_more(self, store):
        worker = started(store)
        first, _ = store.send_signal(signal_for(worker.execution_id))
        second, _ = store.send_signal(signal_for(worker.execution_id))
        worker.landed(store.commit(take(worker, first)))
        assert store.pending_signals(worker.execution_id, "approved") == [second]
        worker.waits("later", waits_for="approved")
        assert acquirable(store, worker.execution_id)

    def test_a_repeated_taking_is_recognised(self, store):
        worker = started(store)
        sent, _ = store.send_signal(signal_for(worker.execution_id))
        commit = take(worker, sent)
        entry = store.commit(commit)
        assert store.commit(commit) == entry

    @pytest.mark.parametrize("why", ["taken", "rejected", "another's", "unknown"])
    def test_a_signal_that_cannot_be_taken_takes_the_commit_with_it(self, store, why):
        worker, other = started(store), started(store)
        to = other if why == "another's" else worker
        sent, _ = store.send_signal(signal_for(to.execution_id))
        if why == "taken":
            worker.landed(store.commit(take(worker, sent)))
        elif why == "rejected":
            store.reject_signal(sent.signal_id, "not a decision")
        elif why == "unknown":
            sent = replace(sent, signal_id=uuid4())
        before = (worker.execution, store.chain(worker.execution_id))
        with pytest.raises(CheckpointForkError):
            store.commit(take(worker, sent, visit=2))
        assert (worker.execution, store.chain(worker.execution_id)) == before

    def test_of_two_owners_one_takes_it(self, store):
        worker = started(store)
        sent, _ = store.send_signal(signal_for(worker.execution_id))
        late = take(worker, sent)
        successor = Worker.take(store, worker.execution_id)
        answers = at_once(
            [partial(store.commit, late), partial(store.commit, take(successor, sent))]
        )
        assert [isinstance(answer, Checkpoint) for answer in answers] == [False, True]

    # rejecting

    def test_a_rejected_signal_is_on_record_and_wakes_nobody(self, store):
        worker = started(store)
        sent, _ = store.send_signal(signal_for(worker.execution_id))
        store.reject_signal(sent.signal_id, "yes is no number")
        store.reject_signal(sent.signal_id, "once more")
        assert store.pending_signals(worker.execution_id, "approved") == []
        event = on_record(store, worker.execution_id, EventName.SIGNAL_REJECTED)
        assert event.details == {
            "signal_id": str(sent.signal_id),
            "name": "approved",
            "reason": "yes is no number",
        }
        worker.waits(waits_for="approved")
        assert not acquirable(store, worker.execution_id)
        store.defer(worker.execution_id, 1, LATER)
        assert store.claim_waiting(10, LATER) == []

    def test_rejecting_what_was_taken_or_is_unknown_is_harmless(self, store):
        worker = started(store)
        sent, _ = store.send_signal(signal_for(worker.execution_id))
        worker.landed(store.commit(take(worker, sent)))
        store.reject_signal(sent.signal_id, "too late")
        store.reject_signal(uuid4(), "unknown")
        assert EventName.SIGNAL_REJECTED not in names(store, worker.execution_id)

    # continue-as-new

    def test_what_nobody_has_taken_goes_along_when_an_execution_is_continued(self, store):
        worker = started(store)
        sent = [store.send_signal(signal_for(worker.execution_id, key=key))[0] for key in "abcd"]
        worker.landed(store.commit(take(worker, sent[0])))
        store.reject_signal(sent[1].signal_id, "no")
        again = next_of_line(worker.execution)
        worker.finish(Status.CONTINUED, children=(again,))
        assert store.pending_signals(worker.execution_id, "approved") == []
        left = store.pending_signals(again.execution_id, "approved")
        assert ids(left) == ids(sent[2:])
        assert {signal.execution_id for signal in left} == {again.execution_id}
        following = Worker.take(store, again.execution_id)
        following.landed(store.commit(take(following, left[0])))
        assert ids(store.pending_signals(again.execution_id, "approved")) == ids(sent[3:])

    def test_a_signal_to_any_of_a_line_reaches_the_last(self, store):
        first = started(store)
        worker, line = first, [first.execution_id]
        for _ in range(25):
            again = next_of_line(worker.execution)
            worker.finish(Status.CONTINUED, children=(again,))
            worker = Worker.take(store, again.execution_id)
            line.append(again.execution_id)
        worker.waits(waits_for="approved")
        for number, execution_id in enumerate((line[0], line[7], line[-1])):
            sent, made = store.send_signal(signal_for(execution_id, key=str(number)))
            assert made
            assert sent.execution_id == line[-1]
        assert [e.execution_id for e in store.claim_waiting(10, LATER)] == [line[-1]]

    def test_a_key_counts_for_the_whole_line(self, store):
        worker = started(store)
        sent, _ = store.send_signal(signal_for(worker.execution_id, key="k"))
        worker.landed(store.commit(take(worker, sent)))
        again = next_of_line(worker.execution)
        worker.finish(Status.CONTINUED, children=(again,))
        stored, made = store.send_signal(signal_for(worker.execution_id, key="k"))
        assert not made
        assert stored.signal_id == sent.signal_id
        assert store.pending_signals(again.execution_id, "approved") == []

    def test_no_signal_is_lost_between_two_of_a_line(self, store):
        for _ in range(8):
            worker = started(store)
            again = next_of_line(worker.execution)
            last = worker.extension("ends", status=Status.CONTINUED, children=(again,))
            new = signal_for(worker.execution_id)
            landed, sent = at_once([partial(store.commit, last), partial(store.send_signal, new)])
            assert isinstance(landed, Checkpoint), landed
            assert sent[1], sent
            assert ids(store.pending_signals(again.execution_id, "approved")) == [new.signal_id]
