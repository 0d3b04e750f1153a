"""What every lease store must do: subclass it and give the fixtures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest

from fencepost.ports import LeaseStore
from fencepost.records import Lease
from tests.conformance.support import at_once, eventually, milliseconds, new_owner

LONG = timedelta(minutes=5)
SHORT = milliseconds(60)


def take(store: LeaseStore, execution_id: UUID, ttl: timedelta = LONG) -> Lease:
    lease = store.acquire(execution_id, new_owner(), ttl)
    assert lease is not None
    return lease


def take_when_expired(store: LeaseStore, execution_id: UUID) -> Lease:
    lease = eventually(lambda: store.acquire(execution_id, new_owner(), LONG))
    assert lease is not None
    return lease


def owner_of(store: LeaseStore, execution_id: UUID) -> str | None:
    (state,) = store.state([execution_id])
    return state.owner if state else None


class LeaseStoreConformance:
    @pytest.fixture
    def store(self) -> LeaseStore:
        raise NotImplementedError

    @pytest.fixture
    def lose_everything(self) -> Callable[[], object]:
        """Makes the store forget all of its facts at once."""
        raise NotImplementedError

    # acquire

    def test_a_free_lease_is_taken_and_proposes_the_first_epoch(self, store):
        execution_id = uuid4()
        before = time.monotonic()
        lease = store.acquire(execution_id, "a", LONG)
        assert (lease.execution_id, lease.owner, lease.epoch) == (execution_id, "a", 1)
        assert before < lease.deadline < before + LONG.total_seconds()

    def test_the_holder_trusts_its_lease_less_than_the_store_does(self, store):
        lease = take(store, uuid4())
        (state,) = store.state([lease.execution_id])
        assert lease.deadline - time.monotonic() < state.remaining.total_seconds()

    def test_a_live_lease_is_busy_for_everybody(self, store):
        lease = take(store, uuid4())
        assert store.acquire(lease.execution_id, "b", LONG) is None
        assert store.acquire(lease.execution_id, lease.owner, LONG) is None
        assert owner_of(store, lease.execution_id) == lease.owner

    def test_executions_are_independent(self, store):
        assert take(store, uuid4()).epoch == 1
        assert take(store, uuid4()).epoch == 1

    def test_an_expired_lease_goes_to_another_but_not_before_its_holders_deadline(self, store):
        lease = take(store, uuid4(), SHORT)
        taken = take_when_expired(store, lease.execution_id)
        assert time.monotonic() > lease.deadline
        assert owner_of(store, lease.execution_id) == taken.owner

    def test_a_proposal_is_forgotten_unless_settled(self, store):
        lease = take(store, uuid4(), SHORT)
        assert take_when_expired(store, lease.execution_id).epoch == lease.epoch == 1

    def test_one_of_many_wins(self, store):
        execution_id = uuid4()
        owners = [new_owner() for _ in range(16)]
        answers = at_once([partial(store.acquire, execution_id, owner, LONG) for owner in owners])
        (lease,) = [answer for answer in answers if answer is not None]
        assert owner_of(store, execution_id) == lease.owner

    # settle

    def test_a_settled_epoch_is_what_the_next_proposal_follows(self, store):
        lease = store.settle(take(store, uuid4()), 5, SHORT)
        assert lease.epoch == 5
        (state,) = store.state([lease.execution_id])
        assert (state.owner, state.epoch) == (lease.owner, 5)
        assert take_when_expired(store, lease.execution_id).epoch == 6

    def test_settling_renews(self, store):
        lease = take(store, uuid4(), milliseconds(2000))
        settled = store.settle(lease, 1, LONG)
        assert settled.deadline > lease.deadline
        (state,) = store.state([lease.execution_id])
        assert state.remaining > timedelta(minutes=4)

    def test_another_owners_lease_cannot_be_settled(self, store):
        lease = take(store, uuid4(), SHORT)
        taken = take_when_expired(store, lease.execution_id)
        assert store.settle(lease, 7, LONG) is None
        (state,) = store.state([lease.execution_id])
        assert (state.owner, state.epoch) == (taken.owner, 0)

    def test_an_expired_lease_cannot_be_settled_or_renewed(self, store):
        lease = take(store, uuid4(), SHORT)
        eventually(lambda: owner_of(store, lease.execution_id) is None)
        assert store.settle(lease, 1, LONG) is None
        assert store.renew(lease, LONG, restore=True) is None
        assert owner_of(store, lease.execution_id) is None

    def test_a_vanished_lease_cannot_be_settled(self, store, lose_everything):
        lease = take(store, uuid4())
        lose_everything()
        assert store.settle(lease, 1, LONG) is None

    def test_epochs_never_fall(self, store):
        lease = take(store, uuid4())
        newer = store.settle(lease, 5, LONG)
        assert store.settle(lease, 4, LONG) is None
        assert store.renew(lease, LONG, restore=True) is None
        (state,) = store.state([lease.execution_id])
        assert state.epoch == 5
        assert store.renew(newer, LONG, restore=False).epoch == 5

    # renew

    def test_renewing_extends(self, store):
        lease = store.settle(take(store, uuid4()), 1, milliseconds(2000))
        renewed = store.renew(lease, LONG, restore=False)
        assert (renewed.owner, renewed.epoch) == (lease.owner, lease.epoch)
        assert renewed.deadline > lease.deadline
        (state,) = store.state([lease.execution_id])
        assert state.remaining > timedelta(minutes=4)

    def test_a_lease_lives_as_long_as_it_is_renewed(self, store):
        ttl = milliseconds(1000)
        lease = store.settle(take(store, uuid4()), 1, ttl)
        end = time.monotonic() + 1.5 * ttl.total_seconds()

        def beat() -> bool:
            nonlocal lease
            lease = store.renew(lease, ttl, restore=False)
            assert store.acquire(lease.execution_id, "thief", LONG) is None
            return time.monotonic() > end

        eventually(beat)

    def test_another_owners_lease_cannot_be_renewed(self, store):
        lease = store.settle(take(store, uuid4()), 1, SHORT)
        taken = take_when_expired(store, lease.execution_id)
        for restore in (False, True):
            assert store.renew(lease, LONG, restore=restore) is None
        assert owner_of(store, lease.execution_id) == taken.owner

    def test_a_vanished_lease_is_put_back_only_on_request(self, store, lose_everything):
        lease = store.settle(take(store, uuid4()), 3, LONG)
        lose_everything()
        assert store.renew(lease, LONG, restore=False) is None
        assert owner_of(store, lease.execution_id) is None
        restored = store.renew(lease, LONG, restore=True)
        assert (restored.owner, restored.epoch) == (lease.owner, 3)
        assert store.acquire(lease.execution_id, "b", LONG) is None
        assert store.release(restored, forget=False)
        assert take(store, lease.execution_id).epoch == 4

    def test_a_restored_lease_is_watched_again(self, store, lose_everything):
        lease = store.settle(take(store, uuid4()), 1, LONG)
        lose_everything()
        store.renew(lease, SHORT, restore=True)
        assert eventually(lambda: store.claim_expired(10, LONG)) == [lease.execution_id]

    def test_nothing_is_put_back_over_a_successor(self, store, lose_everything):
        lease = store.settle(take(store, uuid4()), 3, LONG)
        lose_everything()
        taken = take(store, lease.execution_id)
        assert store.renew(lease, LONG, restore=True) is None
        assert owner_of(store, lease.execution_id) == taken.owner

    def test_a_released_lease_is_not_put_back(self, store):
        lease = store.settle(take(store, uuid4()), 3, LONG)
        store.release(lease, forget=False)
        assert store.renew(lease, LONG, restore=True) is None
        assert owner_of(store, lease.execution_id) is None

    # release

    def test_a_released_lease_is_free_and_its_epoch_remembered(self, store):
        lease = store.settle(take(store, uuid4()), 4, LONG)
        assert store.release(lease, forget=False) is True
        assert owner_of(store, lease.execution_id) is None
        assert take(store, lease.execution_id).epoch == 5

    def test_releasing_may_forget_the_epoch(self, store):
        lease = store.settle(take(store, uuid4()), 4, LONG)
        assert store.release(lease, forget=True) is True
        assert take(store, lease.execution_id).epoch == 1

    def test_a_lease_that_was_never_settled_can_be_released(self, store):
        lease = take(store, uuid4())
        assert store.release(lease, forget=False) is True
        assert take(store, lease.execution_id).epoch == 1

    @pytest.mark.parametrize("forget", [False, True])
    def test_only_the_owner_releases(self, store, forget):
        lease = take(store, uuid4(), SHORT)
        taken = take_when_expired(store, lease.execution_id)
        assert store.release(lease, forget=forget) is False
        assert owner_of(store, lease.execution_id) == taken.owner
        assert store.release(taken, forget=forget) is True
        assert store.release(taken, forget=forget) is False

    def test_a_released_lease_never_expires(self, store):
        released, other = take(store, uuid4(), SHORT), take(store, uuid4(), SHORT)
        store.release(released, forget=False)
        assert eventually(lambda: store.claim_expired(10, LONG)) == [other.execution_id]

    # state

    def test_states_come_in_the_order_asked(self, store):
        first, second = take(store, uuid4()), store.settle(take(store, uuid4()), 2, LONG)
        expired = take(store, uuid4(), milliseconds(1))
        eventually(lambda: owner_of(store, expired.execution_id) is None)
        asked = [second.execution_id, uuid4(), expired.execution_id, first.execution_id]
        states = store.state(asked)
        assert [s and (s.owner, s.epoch) for s in states] == [
            (second.owner, 2),
            None,
            None,
            (first.owner, 0),
        ]
        assert all(timedelta(minutes=4) < s.remaining <= LONG for s in states if s)

    def test_nothing_asked_nothing_told(self, store):
        assert store.state([]) == []

    # claim_expired

    def test_only_expired_leases_are_claimed_settled_or_not(self, store):
        live = take(store, uuid4())
        settled = store.settle(take(store, uuid4()), 1, SHORT)
        proposed = take(store, uuid4(), SHORT)
        claimed: list[UUID] = []

        def both() -> bool:
            claimed.extend(store.claim_expired(10, LONG))
            return len(claimed) >= 2

        eventually(both)
        assert sorted(claimed) == sorted([settled.execution_id, proposed.execution_id])
        assert owner_of(store, live.execution_id) == live.owner

    def test_a_claim_hides_for_a_while_and_no_longer(self, store):
        lease = take(store, uuid4(), milliseconds(1))
        hold = milliseconds(150)
        before = time.monotonic()
        assert eventually(lambda: store.claim_expired(10, hold)) == [lease.execution_id]
        assert eventually(lambda: store.claim_expired(10, hold)) == [lease.execution_id]
        assert time.monotonic() - before >= 0.149  # servers count whole milliseconds

    def test_a_claimed_lease_can_be_taken_and_is_then_left_alone(self, store):
        lease = take(store, uuid4(), milliseconds(1))
        hold = milliseconds(30)
        eventually(lambda: store.claim_expired(10, hold))
        taken = take(store, lease.execution_id)
        other = take(store, uuid4(), milliseconds(100))
        assert eventually(lambda: store.claim_expired(10, hold)) == [other.execution_id]
        assert owner_of(store, lease.execution_id) == taken.owner

    def test_renewing_puts_expiry_off(self, store):
        renewed, other = take(store, uuid4(), milliseconds(500)), take(store, uuid4(), SHORT)
        assert store.renew(renewed, LONG, restore=False)
        assert eventually(lambda: store.claim_expired(10, LONG)) == [other.execution_id]
        later = take(store, uuid4(), milliseconds(500))
        assert eventually(lambda: store.claim_expired(10, LONG)) == [later.execution_id]

    def test_the_limit_holds_and_the_longest_expired_come_first(self, store):
        leases = [take(store, uuid4(), milliseconds(1 + 5 * i)) for i in range(4)]
        ids = [lease.execution_id for lease in leases]
        eventually(lambda: not any(store.state(ids)))
        claims = [store.claim_expired(3, LONG), store.claim_expired(3, LONG)]
        assert claims == [ids[:3], ids[3:]]

    def test_claimants_share_out_the_expired_leases(self, store):
        leases = [take(store, uuid4(), milliseconds(1)) for _ in range(40)]
        ids = {lease.execution_id for lease in leases}
        eventually(lambda: not any(store.state(list(ids))))
        answers = at_once([lambda: store.claim_expired(7, LONG)] * 8)
        claimed = Counter(id_ for answer in answers for id_ in answer)
        assert set(claimed) == ids
        assert set(claimed.values()) == {1}

    # discard

    def test_discarding_forgets_epochs_and_expired_leases(self, store):
        released = store.settle(take(store, uuid4()), 4, LONG)
        store.release(released, forget=False)
        expired = store.settle(take(store, uuid4()), 4, milliseconds(1))
        eventually(lambda: owner_of(store, expired.execution_id) is None)
        store.discard([released.execution_id, expired.execution_id, uuid4()])
        assert store.claim_expired(10, LONG) == []
        assert take(store, released.execution_id).epoch == 1
        assert take(store, expired.execution_id).epoch == 1

    def test_discarding_spares_live_leases(self, store):
        lease = store.settle(take(store, uuid4()), 4, milliseconds(600))
        store.discard([lease.execution_id])
        assert owner_of(store, lease.execution_id) == lease.owner
        assert eventually(lambda: store.claim_expired(10, LONG)) == [lease.execution_id]
        assert take(store, lease.execution_id).epoch == 5

    def test_many_can_be_discarded_at_once(self, store):
        ids = [uuid4() for _ in range(1201)]
        for execution_id in ids[::400]:
            store.release(store.settle(take(store, execution_id), 2, LONG), forget=False)
        store.discard(iter(ids))
        assert [take(store, execution_id).epoch for execution_id in ids[::400]] == [1] * 4

    # amnesia

    def test_after_amnesia_everything_is_free(self, store, lose_everything):
        lease = store.settle(take(store, uuid4()), 4, LONG)
        lose_everything()
        assert store.state([lease.execution_id]) == [None]
        assert store.claim_expired(10, LONG) == []
        assert store.release(lease, forget=False) is False
        store.discard([lease.execution_id])
        successor = take(store, lease.execution_id)
        assert successor.epoch == 1
        assert store.settle(successor, 5, LONG).epoch == 5
        assert store.renew(replace(lease, epoch=5), LONG, restore=True) is None
