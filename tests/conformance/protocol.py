"""Both stores together: a lease proposes, the execution store disposes."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from fencepost.errors import ExecutionLeaseLostError
from fencepost.records import Acquired, EventName, Lease, Refused, Status
from tests.conformance.support import (
    LATER,
    at_once,
    eventually,
    milliseconds,
    new_execution,
    new_owner,
    started,
)

LONG = timedelta(minutes=5)


class ProtocolConformance:
    """Fixtures to give: `leases`, `store`, and `lose_everything`, which flushes the leases."""

    @staticmethod
    def own(leases, store, execution_id: UUID) -> tuple[Lease, Acquired]:
        """Propose, dispose, settle."""
        lease = leases.acquire(execution_id, new_owner(), LONG)
        acquired = store.acquire(execution_id, lease.owner, lease.epoch, LATER)
        assert isinstance(acquired, Acquired), acquired
        return leases.settle(lease, acquired.execution.epoch, LONG), acquired

    def test_epochs_agree_from_owner_to_owner(self, leases, store):
        execution, _ = store.create(new_execution())
        for expected in (1, 2, 3):
            lease, acquired = self.own(leases, store, execution.execution_id)
            assert lease.epoch == acquired.execution.epoch == expected
            assert leases.release(lease, forget=False)
        assert store.get(execution.execution_id).epoch == 3

    def test_a_proposal_that_stalled_on_its_way_is_refused(self, leases, store):
        execution, _ = store.create(new_execution())
        stalled = leases.acquire(execution.execution_id, "stalled", milliseconds(50))
        lease = eventually(lambda: leases.acquire(execution.execution_id, "quick", LONG))
        assert stalled.epoch == lease.epoch == 1
        acquired = store.acquire(execution.execution_id, "quick", lease.epoch, LATER)
        assert acquired.execution.epoch == 1
        refused = store.acquire(execution.execution_id, "stalled", stalled.epoch, LATER)
        assert refused == Refused(Status.ACTIVE, 1)
        # To propose again it has to hold the lease, and it doesn't.
        assert leases.settle(stalled, refused.epoch, LONG) is None
        assert leases.settle(lease, 1, LONG) is not None
        assert store.get(execution.execution_id).owner == "quick"

    def test_after_amnesia_the_rows_epoch_wins_and_is_written_back(
        self, leases, store, lose_everything
    ):
        execution, _ = store.create(new_execution())
        for _ in range(5):
            lease, _ = self.own(leases, store, execution.execution_id)
            leases.release(lease, forget=False)
        lose_everything()
        lease = leases.acquire(execution.execution_id, "amnesiac", LONG)
        assert lease.epoch == 1
        refused = store.acquire(execution.execution_id, "amnesiac", lease.epoch, LATER)
        assert refused == Refused(Status.ACTIVE, 5)
        lease = leases.settle(lease, refused.epoch, LONG)
        acquired = store.acquire(execution.execution_id, "amnesiac", lease.epoch + 1, LATER)
        lease = leases.settle(lease, acquired.execution.epoch, LONG)
        assert lease.epoch == acquired.execution.epoch == 6
        leases.release(lease, forget=False)
        assert self.own(leases, store, execution.execution_id)[0].epoch == 7

    def test_leases_ahead_of_the_rows_do_not_go_unnoticed(self, leases, store):
        execution, _ = store.create(new_execution())
        lease = leases.acquire(execution.execution_id, "a", LONG)
        leases.release(leases.settle(lease, 4, LONG), forget=False)
        lease, acquired = self.own(leases, store, execution.execution_id)
        assert lease.epoch == acquired.execution.epoch == 5
        event = store.events([execution.execution_id])[-1]
        assert (event.name, event.epoch) == (EventName.LEASE_ACQUIRED, 5)
        assert event.details["previous_epoch"] == 0

    def test_a_lease_that_is_still_live_makes_no_owner(self, leases, store):
        """Two acquired without the leases' help, as after a flush; the row knows one owner."""
        worker = started(store)
        lease = leases.acquire(worker.execution_id, worker.owner, LONG)
        lease = leases.settle(lease, 1, LONG)
        assert isinstance(store.acquire(worker.execution_id, "b", 2, LATER), Acquired)
        assert leases.renew(lease, LONG, restore=False) is not None
        with pytest.raises(ExecutionLeaseLostError):
            worker.commit()

    def test_an_owner_keeps_its_lease_when_it_raises_its_own_epoch(self, leases, store):
        worker = started(store)
        lease = leases.acquire(worker.execution_id, worker.owner, LONG)
        lease = leases.settle(lease, worker.epoch, LONG)
        worker.compensate()
        lease = leases.settle(lease, worker.epoch, LONG)
        assert lease.epoch == worker.execution.epoch == 2
        assert leases.renew(lease, LONG, restore=False).epoch == 2

    def test_a_storm_of_messages_makes_one_owner(self, leases, store):
        execution, _ = store.create(new_execution())

        def deliver():
            lease = leases.acquire(execution.execution_id, new_owner(), LONG)
            if lease is None:
                return None
            return store.acquire(execution.execution_id, lease.owner, lease.epoch, LATER)

        answers = at_once([deliver] * 16)
        assert sum(isinstance(answer, Acquired) for answer in answers) == 1
        assert sum(answer is None for answer in answers) == 15
