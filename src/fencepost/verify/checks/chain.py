"""Invariant 3: the checkpoint chain is one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from fencepost.verify.facts import CheckpointFact, ExecutionFact, Facts
from fencepost.verify.invariant import Findings


def check(facts: Facts, found: Findings) -> None:
    """Every execution's chain, and the head that its row names."""
    for execution_id, execution in facts.executions.items():
        chain = facts.chains.get(execution_id, ())
        found.examined("chains")
        found.examined("checkpoints", len(chain))
        if not chain:
            found.violated("chain.empty", execution_id, "it has no checkpoint, not even a root")
            continue
        _root(execution, chain, found)
        _no_fork(execution, chain, found)
        _no_gap(execution, chain, found)
        _links(execution, chain, found)
        _head(execution, chain, found)
        _visits(execution, chain, found)


def _root(execution: ExecutionFact, chain: Sequence[CheckpointFact], found: Findings) -> None:
    roots = [c for c in chain if c.parent_checkpoint_id is None]
    if [(c.seq, c.kind) for c in roots] != [(0, "start")]:
        found.violated(
            "chain.root",
            execution.execution_id,
            f"it has {len(roots)} checkpoints without a parent instead of one start",
            roots=[{"seq": c.seq, "kind": c.kind} for c in roots],
        )


def _no_fork(execution: ExecutionFact, chain: Sequence[CheckpointFact], found: Findings) -> None:
    numbers = Counter(c.seq for c in chain)
    parents = Counter(c.parent_checkpoint_id for c in chain if c.parent_checkpoint_id is not None)
    twice = sorted(seq for seq, count in numbers.items() if count > 1)
    forked = [parent for parent, count in parents.items() if count > 1]
    if twice or forked:
        found.violated(
            "chain.fork",
            execution.execution_id,
            "two checkpoints continue the same one",
            numbers=twice,
            parents=forked,
        )


def _no_gap(execution: ExecutionFact, chain: Sequence[CheckpointFact], found: Findings) -> None:
    missing = sorted(set(range(chain[-1].seq + 1)) - {c.seq for c in chain})
    if missing:
        found.violated(
            "chain.gap",
            execution.execution_id,
            f"checkpoints are missing from its chain: {missing}",
            missing=missing,
        )


def _links(execution: ExecutionFact, chain: Sequence[CheckpointFact], found: Findings) -> None:
    for before, after in pairwise(chain):
        if after.seq == before.seq + 1 and after.parent_checkpoint_id != before.checkpoint_id:
            found.violated(
                "chain.link",
                execution.execution_id,
                f"checkpoint {after.seq} does not continue checkpoint {before.seq}",
                parent=after.parent_checkpoint_id,
                expected=before.checkpoint_id,
            )
        if after.epoch < before.epoch:
            found.violated(
                "chain.epoch-fell",
                execution.execution_id,
                f"the epoch falls from {before.epoch} to {after.epoch} at checkpoint {after.seq}",
                seq=after.seq,
                before=before.epoch,
                after=after.epoch,
            )


COUNTED = {"step-failed": "step"}
"""Kinds whose visits are counted together with those of another."""

IN_ORDER = frozenset(
    {"step", "step-failed", "fan-out", "join", "decision", "wait", "woken"}
    | {"compensating", "reopened"}
)
"""Kinds whose visits come one after the other. Undos come the other way round."""


def _visits(execution: ExecutionFact, chain: Sequence[CheckpointFact], found: Findings) -> None:
    """The visits to a step are numbered from 1, and nobody comes to the next before the last."""
    highest: Counter[tuple[str, str]] = Counter()
    for entry in chain:
        if entry.kind not in IN_ORDER:
            continue
        what = (COUNTED.get(entry.kind, entry.kind), entry.step)
        # The same visit twice is invariant 5's.
        if entry.visit not in (highest[what], highest[what] + 1) or entry.visit < 1:
            found.violated(
                "chain.visit",
                execution.execution_id,
                f"checkpoint {entry.seq} is of visit {entry.visit} to {entry.step!r}, after"
                f" visit {highest[what]}",
                seq=entry.seq,
                kind=entry.kind,
            )
        highest[what] = max(highest[what], entry.visit)


def _head(execution: ExecutionFact, chain: Sequence[CheckpointFact], found: Findings) -> None:
    last = chain[-1]
    if (execution.head, execution.head_seq) != (last.checkpoint_id, last.seq):
        found.violated(
            "chain.head",
            execution.execution_id,
            f"the row names checkpoint {execution.head_seq} as the head, the last is {last.seq}",
            row=execution.head,
            last=last.checkpoint_id,
        )
