"""Extending the chain: fenced, once, and in one line."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest

from fencepost import serde
from fencepost.errors import CheckpointForkError, ExecutionLeaseLostError
from fencepost.records import Checkpoint, CheckpointKind, EventName, Refused, Status
from tests.conformance.support import LATER, NOW, Worker, at_once, names, started


class Commits:
    def test_a_commit_extends_the_chain(self, store):
        worker = started(store)
        root = store.chain(worker.execution_id)[0]
        result = {"größe": [1, 2.5, None, True], "nested": {"": "🦀"}}
        commit = worker.extension("prepare", result)
        entry = store.commit(commit)
        assert entry.checkpoint_id == commit.checkpoint_id
        assert (entry.seq, entry.parent_checkpoint_id) == (1, root.checkpoint_id)
        assert (entry.kind, entry.step, entry.visit) == (CheckpointKind.STEP, "prepare", 1)
        assert entry.step_key == commit.token.step_key
        assert (entry.epoch, entry.owner, entry.attempt) == (1, worker.owner, 1)
        assert entry.result == result
        assert entry.created_at.utcoffset() == timedelta(0)
        assert store.chain(worker.execution_id) == (root, entry)
        now = worker.execution
        assert (now.head, now.head_seq) == (entry.checkpoint_id, 1)
        assert (now.status, now.owner, now.epoch) == (Status.ACTIVE, worker.owner, 1)

    @pytest.mark.parametrize("result", [None, False, 0, "", [], {}, "text", 1.5, [None]])
    def test_any_json_value_comes_back_as_it_was(self, store, result):
        worker = started(store)
        assert worker.commit("prepare", result).result == result
        assert store.chain(worker.execution_id)[-1].result == result

    def test_what_is_stored_is_not_the_callers_object(self, store):
        worker = started(store)
        result = {"items": [1]}
        worker.commit("prepare", result)
        result["items"].append(2)
        assert store.chain(worker.execution_id)[-1].result == {"items": [1]}

    def test_a_chain_outlives_its_owners(self, store):
        worker = started(store)
        worker.commit("prepare")
        worker = Worker.take(store, worker.execution_id)
        worker.commit("stage")
        worker.finish()
        chain = store.chain(worker.execution_id)
        assert [entry.epoch for entry in chain] == [0, 1, 2, 2]
        assert [entry.seq for entry in chain] == [0, 1, 2, 3]
        links = [entry.parent_checkpoint_id for entry in chain[1:]]
        assert links == [entry.checkpoint_id for entry in chain[:-1]]

    def test_a_landed_commit_can_be_repeated(self, store):
        worker = started(store)
        commit = worker.extension("prepare", {"a": 1})
        entry = store.commit(commit)
        before = worker.execution
        assert store.commit(commit) == entry
        assert worker.execution == before
        assert EventName.LEASE_LOST not in names(store, worker.execution_id)

    def test_a_landed_commit_can_be_repeated_by_one_who_lost_the_lease_since(self, store):
        worker = started(store)
        commit = worker.extension("prepare", {"a": 1})
        entry = store.commit(commit)
        successor = Worker.take(store, worker.execution_id)
        successor.commit("stage")
        assert store.commit(commit) == entry
        assert len(store.chain(worker.execution_id)) == 3
        assert worker.execution.owner == successor.owner

    def test_a_zombies_commit_is_refused_and_put_on_record(self, store):
        worker = started(store)
        successor = Worker.take(store, worker.execution_id)
        before = (worker.execution, store.chain(worker.execution_id))
        late = worker.extension("stage", {"late": True})
        with pytest.raises(ExecutionLeaseLostError) as caught:
            store.commit(late)
        assert caught.value.code == "execution.lease-lost"
        assert (caught.value.held, caught.value.current) == (1, 2)
        assert caught.value.fields["step_key"] == late.token.step_key
        assert (worker.execution, store.chain(worker.execution_id)) == before
        event = store.events([worker.execution_id])[-1]
        assert event.name == EventName.LEASE_LOST
        assert (event.epoch, event.current_epoch) == (1, 2)
        assert (event.owner, event.current_owner) == (worker.owner, successor.owner)
        assert event.step_key == late.token.step_key
        assert event.sink
        assert event.payload_digest == serde.digest({"late": True})
        successor.commit("stage")

    def test_a_refused_write_of_nothing_has_a_digest_too(self, store):
        worker = started(store)
        Worker.take(store, worker.execution_id)
        with pytest.raises(ExecutionLeaseLostError):
            store.commit(worker.extension("stage", None))
        event = store.events([worker.execution_id])[-1]
        assert event.payload_digest == serde.digest(None)

    def test_an_epoch_alone_is_not_trusted(self, store):
        worker = started(store)
        forged = replace(worker.extension(), token=replace(worker.token(), owner="another"))
        with pytest.raises(ExecutionLeaseLostError):
            store.commit(forged)
        assert len(store.chain(worker.execution_id)) == 1

    @pytest.mark.parametrize("epoch", [0, 2])
    def test_an_owner_alone_is_not_trusted(self, store, epoch):
        worker = started(store)
        forged = replace(worker.extension(), token=replace(worker.token(), epoch=epoch))
        with pytest.raises(ExecutionLeaseLostError):
            store.commit(forged)
        assert len(store.chain(worker.execution_id)) == 1

    def test_one_who_handed_back_is_fenced_at_the_same_epoch(self, store):
        worker = started(store)
        store.hand_back(worker.token(), NOW)
        with pytest.raises(ExecutionLeaseLostError):
            worker.commit()
        assert len(store.chain(worker.execution_id)) == 1

    def test_a_commit_to_another_head_is_a_fork_and_no_lost_lease(self, store):
        worker = started(store)
        stale = worker.extension("stage")
        worker.commit("prepare")
        before = worker.execution
        with pytest.raises(CheckpointForkError):
            store.commit(stale)
        assert worker.execution == before
        assert len(store.chain(worker.execution_id)) == 2
        assert EventName.LEASE_LOST not in names(store, worker.execution_id)

    def test_a_visit_is_recorded_once_per_kind(self, store):
        worker = started(store)
        worker.commit("stage")
        before = worker.execution
        with pytest.raises(CheckpointForkError):
            worker.commit("stage")
        assert worker.execution == before
        worker.commit("stage", kind=CheckpointKind.UNDO)
        assert len(store.chain(worker.execution_id)) == 3

    def test_one_of_many_commits_to_a_head_lands(self, store):
        worker = started(store)
        commits = [worker.extension(f"step-{i}") for i in range(8)]
        answers = at_once([partial(store.commit, commit) for commit in commits])
        landed = [answer for answer in answers if isinstance(answer, Checkpoint)]
        forks = [answer for answer in answers if isinstance(answer, CheckpointForkError)]
        assert (len(landed), len(forks)) == (1, 7)
        assert store.chain(worker.execution_id)[1:] == tuple(landed)

    def test_the_same_commit_sent_many_times_lands_once(self, store):
        worker = started(store)
        commit = worker.extension("stage", {"a": 1})
        answers = at_once([lambda: store.commit(commit)] * 8)
        assert answers == [store.chain(worker.execution_id)[1]] * 8

    def test_a_takeover_and_the_old_owners_commit_exclude_each_other_or_follow(self, store):
        for _ in range(10):
            worker = started(store)
            commit = worker.extension("stage")
            committed, acquired = at_once(
                [
                    partial(store.commit, commit),
                    partial(store.acquire, worker.execution_id, "b", 2, LATER),
                ]
            )
            chain = store.chain(worker.execution_id)
            assert acquired.execution.epoch == 2
            # Whatever the new owner was shown is the whole truth from its epoch on.
            assert acquired.chain == chain
            assert isinstance(committed, Checkpoint) == (len(chain) == 2)
            if len(chain) == 1:
                assert isinstance(committed, ExecutionLeaseLostError)

    @pytest.mark.parametrize(
        "status", [Status.SUCCEEDED, Status.FAILED, Status.COMPENSATED, Status.CONTINUED]
    )
    def test_an_execution_ends_with_its_last_commit(self, store, status):
        worker = started(store)
        worker.finish(status, outcome={"all": "done"}, error={"code": "x"})
        now = worker.execution
        assert (now.status, now.owner) == (status, None)
        assert (now.result, now.error) == ({"all": "done"}, {"code": "x"})
        assert now.ended_at is not None
        assert now.ended_at >= now.created_at
        assert store.acquire(worker.execution_id, "b", 2, LATER) == Refused(status, 1)
        with pytest.raises(ExecutionLeaseLostError):
            worker.commit("more")

    def test_a_repeated_last_commit_is_recognised(self, store):
        worker = started(store)
        last = worker.extension("last", {"a": 1}, status=Status.SUCCEEDED)
        entry = store.commit(last)
        assert store.commit(last) == entry

    def test_chains_are_kept_apart(self, store):
        one, other = started(store), started(store)
        one.commit("stage")
        other.commit("stage")
        crossed = replace(one.extension("gate"), parent=other.head, checkpoint_id=uuid4())
        with pytest.raises(CheckpointForkError):
            store.commit(crossed)
        assert len(store.chain(one.execution_id)) == len(store.chain(other.execution_id)) == 2
