"""Waiting for a time: it ends by the store's clock, and nobody holds anything meanwhile."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol
from uuid import UUID

import pytest

from fencepost.errors import ExecutionLeaseLostError
from fencepost.records import Acquired, CheckpointKind, EventName, Phase, Refused, Status
from tests.conformance.support import (
    LATER,
    NOW,
    Worker,
    acquirable,
    eventually,
    milliseconds,
    names,
    new_owner,
    signal_for,
    started,
)


class Passed(Protocol):
    """Puts a time on an execution's row into the past, as if it had passed."""

    def __call__(self, execution_id: UUID, column: str) -> None:
        """Change one of `wake_at`, `deadline_at`."""
        ...


class Waits:
    def test_a_wait_is_owned_by_nobody_and_tells_when_it_ends(self, store):
        worker = started(store)
        acquired = store.acquire(worker.execution_id, "b", 2, LATER)
        worker = Worker(store, worker.execution_id, "b", 2, worker.head, worker.seq)
        worker.waits(wake_in=LATER)
        now = worker.execution
        assert (now.status, now.owner, now.waits_for) == (Status.WAITING, None, None)
        assert LATER <= now.wake_at - acquired.at < LATER + timedelta(seconds=30)
        assert worker.execution.head == worker.head

    def test_the_moment_may_be_given(self, store):
        worker = started(store)
        moment = worker.execution.created_at + LATER
        worker.waits(wake_at=moment)
        assert worker.execution.wake_at == moment
        assert not acquirable(store, worker.execution_id)

    def test_nothing_runs_before_the_time_has_come(self, store, passed):
        worker = started(store)
        worker.waits(wake_in=LATER)
        refused = store.acquire(worker.execution_id, "early", 2, LATER)
        assert refused == Refused(Status.WAITING, 1)
        store.defer(worker.execution_id, 1, NOW)
        assert store.claim_waiting(10, LATER) == []
        passed(worker.execution_id, "wake_at")
        (found,) = store.claim_waiting(10, LATER)
        assert found == worker.execution
        assert store.claim_waiting(10, LATER) == []

    def test_a_wait_that_is_over_is_found_without_anybodys_doing(self, store):
        worker = started(store)
        worker.waits(wake_in=milliseconds(30))
        (found,) = eventually(lambda: store.claim_waiting(10, LATER))
        assert found.execution_id == worker.execution_id

    def test_whoever_comes_after_a_wait_is_told_what_was_waited_for(self, store, passed):
        worker = started(store)
        worker.waits(wake_in=LATER, waits_for="approved")
        passed(worker.execution_id, "wake_at")
        acquired = store.acquire(worker.execution_id, new_owner(), 2, LATER)
        assert isinstance(acquired, Acquired)
        now = acquired.execution
        assert (now.status, now.waits_for) == (Status.ACTIVE, "approved")
        assert now.wake_at is not None
        assert now.wake_at < acquired.at
        assert now.recoveries == 0
        assert EventName.RECOVERED not in names(store, worker.execution_id)

    def test_the_next_commit_ends_the_wait(self, store, passed):
        worker = started(store)
        worker.waits(wake_in=LATER, waits_for="approved")
        passed(worker.execution_id, "wake_at")
        worker = Worker.take(store, worker.execution_id)
        worker.commit("approval", kind=CheckpointKind.WOKEN)
        now = worker.execution
        assert (now.status, now.wake_at, now.waits_for) == (Status.ACTIVE, None, None)

    def test_a_woken_owner_that_dies_is_followed_like_any_other(self, store, passed):
        worker = started(store)
        worker.waits(wake_in=LATER)
        passed(worker.execution_id, "wake_at")
        Worker.take(store, worker.execution_id)
        successor = Worker.take(store, worker.execution_id)
        assert (successor.epoch, successor.execution.recoveries) == (3, 1)
        assert successor.execution.wake_at is not None

    def test_woken_for_nothing_it_waits_on_until_its_time(self, store, passed):
        worker = started(store)
        worker.waits(wake_in=LATER, waits_for="approved")
        store.send_signal(signal_for(worker.execution_id, "approved"))
        again = Worker.take(store, worker.execution_id)
        (signal,) = store.pending_signals(worker.execution_id, "approved")
        store.reject_signal(signal.signal_id, "no such payload")
        store.wait_on(again.token())
        now = again.execution
        assert (now.status, now.owner) == (Status.WAITING, None)
        assert not acquirable(store, worker.execution_id)
        assert store.claim_waiting(10, LATER) == []
        passed(worker.execution_id, "wake_at")
        assert acquirable(store, worker.execution_id)

    def test_what_came_while_it_was_awake_wakes_it_at_once(self, store):
        worker = started(store)
        worker.waits(waits_for="approved")
        store.send_signal(signal_for(worker.execution_id, "approved"))
        again = Worker.take(store, worker.execution_id)
        store.wait_on(again.token())
        (found,) = store.claim_waiting(10, LATER)
        assert found.execution_id == worker.execution_id

    def test_waiting_on_is_fenced(self, store, passed):
        worker = started(store)
        worker.waits(wake_in=LATER)
        passed(worker.execution_id, "wake_at")
        first = Worker.take(store, worker.execution_id)
        second = Worker.take(store, worker.execution_id)
        with pytest.raises(ExecutionLeaseLostError):
            store.wait_on(first.token())
        assert second.execution.status is Status.ACTIVE

    @pytest.mark.parametrize("by_signal", [False, True])
    def test_one_that_was_turned_back_from_above_waits_for_its_parent(
        self, store, passed, by_signal
    ):
        parent = started(store)
        (child,) = parent.fan_out(1, wakes_at_failures=1)
        worker = Worker.take(store, child.execution_id)
        worker.waits(wake_in=LATER, waits_for="approved")
        # The parent gives up on its child without having been woken: a deadline, say.
        store.turn_back(parent.execution_id, {"code": "x"}, EventName.CANCELLED, {"by": "ann"})
        now = worker.execution
        assert (now.status, now.phase) == (Status.WAITING, Phase.COMPENSATING)
        assert (now.wake_at, now.waits_for) == (None, None)
        if by_signal:
            store.send_signal(signal_for(worker.execution_id))
        else:
            passed(worker.execution_id, "wake_at")
        assert not acquirable(store, worker.execution_id)
        assert store.claim_waiting(10, LATER) == []
