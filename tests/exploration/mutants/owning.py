"""Guards of who may write, and of the chain."""

from __future__ import annotations

from fencepost.testing.explore import Budget, Fault
from tests.exploration.mutants.model import Mutant
from tests.exploration.removing import Cut

ENGINE = "fencepost.engine"
MEMORY = "fencepost.stores.memory"
OWNING = "fencepost.stores.memory.owning:Owning"
OWNER = "row = self._tables.rows[commit.token.execution_id]"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a commit is fenced",
        "a worker that has been taken over can't extend the chain",
        (Cut(f"{OWNING}.commit", "row = self._fence(commit.token, _LEASE_LOST, digest)", OWNER),),
        ("two-steps",),
    ),
    Mutant(
        "a transactional commit is fenced",
        "what a zombie has written in its transaction isn't committed",
        (
            Cut(
                f"{OWNING}.commit_together",
                "row = self._fence(commit.token, _ZOMBIE, digest)",
                OWNER,
            ),
        ),
        ("effect-transactional",),
    ),
    Mutant(
        "the effect ledger is fenced",
        "a zombie can't announce or conclude an effect",
        (
            Cut(
                f"{OWNING}.owned",
                "self._fence(token, (EventName.LEASE_LOST, sink, ExecutionLeaseLostError), digest)",
                "pass",
            ),
        ),
        ("effect-reconcilable", "effect-at-most-once", "cancel-at-most-once"),
    ),
    Mutant(
        "parking is fenced",
        "a zombie can't stop the work of its successor",
        (
            Cut(
                f"{OWNING}.park",
                "row = self._fence(token, _LEASE_LOST, serde.digest(details))",
                "row = self._tables.rows[token.execution_id]",
            ),
        ),
        ("fails-once",),
    ),
    Mutant(
        "a failed attempt is recorded under the fence",
        "a zombie's failure isn't counted as its successor's",
        (
            Cut(
                f"{OWNING}.record_attempt",
                "row = self._fence(token, _LEASE_LOST, serde.digest(details))",
                "row = self._tables.rows[token.execution_id]",
            ),
        ),
        ("flaky",),
    ),
    Mutant(
        "handing back is fenced",
        "a zombie can't take the execution away from its successor",
        (
            Cut(
                f"{OWNING}.hand_back",
                "row = self._fence(token, _LEASE_LOST, serde.digest({}))",
                "row = self._tables.rows[token.execution_id]",
            ),
        ),
        ("two-steps",),
        Budget(2, 1, frozenset({Fault.BREATHLESS})),
    ),
    Mutant(
        "acquiring compares epochs",
        "two workers never own one epoch",
        (
            Cut(
                f"{OWNING}.acquire",
                "if not runnable or before.epoch >= proposed_epoch:",
                "if not runnable:",
            ),
        ),
        ("two-steps",),
    ),
    Mutant(
        "only what is runnable is acquired",
        "nothing runs that has ended, waits or is paused",
        (
            Cut(
                f"{OWNING}.acquire",
                "if not runnable or before.epoch >= proposed_epoch:",
                "if before.epoch >= proposed_epoch:",
            ),
        ),
        ("two-steps", "pause-resume"),
    ),
    Mutant(
        "a pause keeps an execution from being acquired",
        "nothing begins while it is paused",
        (
            Cut(
                f"{MEMORY}.waiting:runnable",
                "return row.execution.paused_at is None",
                "return True",
            ),
            Cut(
                f"{ENGINE}.core:Engine.run",
                "if execution.paused_at is not None:",
                "if False:",
            ),
        ),
        ("pause-resume",),
    ),
    Mutant(
        "a lease that Redis has forgotten is proposed anew",
        "an execution goes on when Redis has lost its epoch",
        (
            Cut(
                f"{ENGINE}.core:Engine._become_owner",
                "if runnable and got.epoch >= lease.epoch:",
                "if False:",
            ),
        ),
        ("two-steps",),
    ),
    Mutant(
        "many takeovers without progress park",
        "a step that kills its workers doesn't kill them for ever",
        (
            Cut(
                f"{ENGINE}.run:Run._park_if_poisonous",
                "if recoveries > limit:",
                "if False:",
            ),
        ),
        ("poison",),
    ),
    Mutant(
        "the end rides on the last commit",
        "nothing comes between the last step and the end",
        (
            Cut(
                f"{ENGINE}.ownership:Ownership._with_what_follows",
                "return replace(commit, status=status, outcome=outcome, error=error)",
                "return commit",
            ),
        ),
        ("two-steps",),
    ),
    Mutant(
        "a commit names the head that it continues",
        "the chain doesn't fork",
        (
            Cut(f"{OWNING}.commit", "row = self._fence(commit.token, _LEASE_LOST, digest)", OWNER),
            Cut(
                f"{MEMORY}.landing:_check",
                "if (execution.head, execution.head_seq + 1) != (commit.parent, commit.seq):",
                "if False:",
            ),
            Cut(f"{MEMORY}.tables:Tables.append", "or named in self._step_keys", ""),
            Cut(
                f"{MEMORY}.tables:Tables.append",
                "or entry.parent_checkpoint_id in self._parents",
                "",
            ),
        ),
        ("two-steps",),
        beside="the commit's fence, and the unique constraints on parent and step key",
    ),
    Mutant(
        "a step key is in the chain once",
        "no step is completed twice",
        (
            Cut(f"{OWNING}.commit", "row = self._fence(commit.token, _LEASE_LOST, digest)", OWNER),
            Cut(
                f"{MEMORY}.landing:_check",
                "if (execution.head, execution.head_seq + 1) != (commit.parent, commit.seq):",
                "if False:",
            ),
            Cut(
                f"{MEMORY}.tables:Tables.append",
                "if (\n        entry.checkpoint_id in self.checkpoints\n"
                "        or entry.parent_checkpoint_id in self._parents\n"
                "        or named in self._step_keys\n    ):",
                "if False:",
            ),
        ),
        ("two-steps",),
        beside="the commit's fence and its head",
    ),
    Mutant(
        "a lease is taken only when it is free or has run out",
        "two workers don't call a sink at once",
        (
            Cut(
                f"{MEMORY}.leases:MemoryLeaseStore.acquire",
                "if entry.expires > self._clock():",
                "if False:",
            ),
        ),
        ("effect-reconcilable",),
    ),
    Mutant(
        "a lease that was lost isn't renewed",
        "whoever was taken over knows it, and Redis names the owner",
        (
            Cut(
                f"{MEMORY}.leases:MemoryLeaseStore._hold",
                "if entry is None or entry.owner != lease.owner or entry.epoch > epoch:",
                "if entry is None:",
            ),
            Cut(
                f"{MEMORY}.leases:MemoryLeaseStore._hold",
                "if entry.expires <= self._clock():",
                "if False:",
            ),
            Cut(
                f"{ENGINE}.heartbeat:Heartbeat.lost", "or self._clock() >= self._lease.deadline", ""
            ),
        ),
        ("effect-reconcilable",),
        beside="the holder's own deadline",
    ),
    Mutant(
        "what has ended gives up its lease",
        "nothing is left in Redis of what has ended",
        (
            Cut(
                f"{ENGINE}.run:Run._end",
                "self.let_go(ended=True)",
                "self.heart.stop()",
            ),
            Cut(
                f"{ENGINE}.reaper:Reaper.expired", "engine.leases.discard(", "(lambda _ids: None)("
            ),
        ),
        ("two-steps",),
        beside="the reaper's discarding of what is left by the dead",
    ),
)

REDUNDANT: tuple[Mutant, ...] = (
    Mutant(
        "a lease is settled after acquiring",
        "nobody goes on whose lease has run out while it acquired",
        (
            Cut(
                f"{ENGINE}.core:Engine._run_owned",
                "if settled is None:",
                "if settled is None:\n        settled = lease\n    if False:",
            ),
        ),
        ("two-steps", "effect-reconcilable", "effect-at-most-once"),
    ),
)
"""Looked at like the others, and not missed: without them work is wasted, and no rule falls."""
