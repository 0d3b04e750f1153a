"""Transactional steps: the effect and the checkpoint land together, or neither does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pytest

from fencepost import serde
from fencepost.errors import CheckpointForkError, StaleLeaseFenceError
from fencepost.ports import ExecutionStore
from fencepost.records import Checkpoint, Commit, EventName, Refused, Status
from tests.conformance.support import (
    LATER,
    NOW,
    Worker,
    at_once,
    names,
    new_execution,
    started,
)


class Ledger(Protocol):
    """The caller's own writes, in the store's database."""

    def session(self) -> AbstractContextManager[Any]:
        """A session of the caller's, with `commit` and `rollback`."""
        ...

    def write(self, session: Any, name: str) -> None:
        """Write one effect."""
        ...

    def written(self) -> list[str]:
        """Names of all effects that have been committed, sorted."""
        ...


class BodyFailedError(Exception):
    pass


def transact(store: ExecutionStore, commit: Commit, body: Callable[[Any], object]) -> Checkpoint:
    """A transactional step whose body is given its session."""
    with store.transaction(commit.token) as transaction:
        body(transaction.session)
        return transaction.commit(commit)


def run(store: ExecutionStore, ledger: Ledger, worker: Worker, effect: str) -> Checkpoint:
    """A transactional step that writes one effect."""
    commit = worker.extension("stage", {"effect": effect})
    return transact(store, commit, lambda session: ledger.write(session, effect))


class Transactions:
    def test_effect_and_checkpoint_land_together(self, store, ledger):
        worker = started(store)
        commit = worker.extension("stage", {"a": 1})
        with store.transaction(commit.token) as transaction:
            ledger.write(transaction.session, "one")
            ledger.write(transaction.session, "two")
            entry = transaction.commit(commit)
        assert ledger.written() == ["one", "two"]
        assert store.chain(worker.execution_id)[-1] == entry
        assert entry.result == {"a": 1}
        worker.landed(entry)
        worker.commit("gate")

    def test_a_step_without_effects_lands_too(self, store, ledger):
        worker = started(store)
        commit = worker.extension("stage")
        with store.transaction(commit.token) as transaction:
            entry = transaction.commit(commit)
        assert store.chain(worker.execution_id)[-1] == entry

    def test_leaving_without_a_commit_rolls_back(self, store, ledger):
        worker = started(store)
        with store.transaction(worker.token()) as transaction:
            ledger.write(transaction.session, "dropped")
        assert ledger.written() == []
        assert len(store.chain(worker.execution_id)) == 1
        assert run(store, ledger, worker, "kept").seq == 1
        assert ledger.written() == ["kept"]

    def test_an_owners_failure_rolls_back_and_stays_what_it_is(self, store, ledger):
        worker = started(store)

        def body(session: Any) -> None:
            ledger.write(session, "dropped")
            raise BodyFailedError

        with pytest.raises(BodyFailedError):
            transact(store, worker.extension(), body)
        assert ledger.written() == []
        assert EventName.ZOMBIE_WRITE_REJECTED not in names(store, worker.execution_id)
        assert worker.execution.owner == worker.owner

    def test_a_zombies_transaction_is_refused_and_put_on_record(self, store, ledger):
        worker = started(store)
        successor = Worker.take(store, worker.execution_id)
        with pytest.raises(StaleLeaseFenceError) as caught:
            run(store, ledger, worker, "late")
        assert caught.value.code == "fence.stale-epoch"
        assert (caught.value.held, caught.value.current) == (1, 2)
        assert ledger.written() == []
        assert len(store.chain(worker.execution_id)) == 1
        event = store.events([worker.execution_id])[-1]
        assert event.name == EventName.ZOMBIE_WRITE_REJECTED
        assert (event.epoch, event.current_epoch) == (1, 2)
        assert (event.owner, event.current_owner) == (worker.owner, successor.owner)
        assert event.sink == "ledger"
        assert event.step_key == worker.token().step_key
        assert event.payload_digest == serde.digest({"effect": "late"})
        trail = names(store, worker.execution_id)
        assert trail.count(EventName.ZOMBIE_WRITE_REJECTED) == 1

    def test_the_fence_counts_at_the_end_not_at_the_beginning(self, store, ledger):
        worker = started(store)

        def body(session: Any) -> None:
            Worker.take(store, worker.execution_id)
            ledger.write(session, "late")

        with pytest.raises(StaleLeaseFenceError):
            transact(store, worker.extension(), body)
        assert ledger.written() == []
        assert worker.execution.epoch == 2

    def test_one_who_handed_back_is_a_zombie_at_the_same_epoch(self, store, ledger):
        worker = started(store)
        store.hand_back(worker.token(), NOW)
        with pytest.raises(StaleLeaseFenceError):
            run(store, ledger, worker, "late")
        assert ledger.written() == []

    def test_a_zombies_failure_is_reported_as_what_it_is(self, store, ledger):
        worker = started(store)
        Worker.take(store, worker.execution_id)
        with (
            pytest.raises(StaleLeaseFenceError) as caught,
            store.transaction(worker.token()),
        ):
            raise BodyFailedError
        assert isinstance(caught.value.__cause__ or caught.value.__context__, BodyFailedError)
        trail = names(store, worker.execution_id)
        assert trail.count(EventName.ZOMBIE_WRITE_REJECTED) == 1

    def test_a_transaction_to_another_head_is_a_fork(self, store, ledger):
        worker = started(store)
        stale = worker.extension("stage")
        worker.commit("prepare")
        with pytest.raises(CheckpointForkError):
            transact(store, stale, lambda session: ledger.write(session, "forked"))
        assert ledger.written() == []
        assert EventName.ZOMBIE_WRITE_REJECTED not in names(store, worker.execution_id)

    def test_a_landed_transaction_can_be_repeated_without_a_second_effect(self, store, ledger):
        worker = started(store)
        commit = worker.extension("stage", {"a": 1})
        entries = []
        for _ in range(2):
            with store.transaction(commit.token) as transaction:
                ledger.write(transaction.session, "once")
                entries.append(transaction.commit(commit))
            Worker.take(store, worker.execution_id)
        assert entries[0] == entries[1]
        assert ledger.written() == ["once"]
        assert EventName.ZOMBIE_WRITE_REJECTED not in names(store, worker.execution_id)

    def test_a_transactional_step_may_end_the_execution(self, store, ledger):
        worker = started(store)
        commit = worker.extension("last", status=Status.SUCCEEDED, outcome={"all": 1})
        with store.transaction(commit.token) as transaction:
            ledger.write(transaction.session, "last")
            transaction.commit(commit)
        assert ledger.written() == ["last"]
        assert worker.execution.result == {"all": 1}
        assert store.acquire(worker.execution_id, "b", 2, LATER) == Refused(Status.SUCCEEDED, 1)

    def test_an_execution_started_in_a_step_shares_its_fate(self, store, ledger):
        worker = started(store)
        kept, dropped = new_execution(), new_execution()
        worker.landed(transact(store, worker.extension(), lambda s: store.create(kept, session=s)))
        Worker.take(store, worker.execution_id)
        with pytest.raises(StaleLeaseFenceError):
            transact(store, worker.extension("gate"), lambda s: store.create(dropped, session=s))
        assert store.get(kept.execution_id) is not None
        assert store.get(dropped.execution_id) is None

    def test_of_an_owner_and_its_successor_only_one_lands(self, store, ledger):
        for attempt in range(10):
            worker = started(store)
            old, new = f"old-{attempt}", f"new-{attempt}"

            def take_over_and_run(worker: Worker = worker, effect: str = new) -> Checkpoint:
                return run(store, ledger, Worker.take(store, worker.execution_id), effect)

            def run_late(worker: Worker = worker, effect: str = old) -> Checkpoint:
                return run(store, ledger, worker, effect)

            at_once([run_late, take_over_and_run])
            written = {name for name in ledger.written() if name in (old, new)}
            (_, entry) = store.chain(worker.execution_id)
            assert written == {entry.result["effect"]}
