"""Invariant 1: what a fork has inherited is the original's, up to the place where it was forked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from fencepost.verify.facts import CheckpointFact, ExecutionFact, Facts
from fencepost.verify.invariant import Findings
from fencepost.verify.names import FORKED


def check(facts: Facts, found: Findings) -> None:
    """Every fork, against its audit event and the chain that it was forked from."""
    for execution_id, execution in facts.executions.items():
        if execution.forked_from is None:
            continue
        found.examined("forks")
        chain = facts.chains.get(execution_id, ())
        inherited = tuple(takewhile(lambda entry: entry.inherited, chain[1:]))
        found.examined("inherited checkpoints", len(inherited))
        _on_record(facts, execution, inherited, found)
        original = facts.origins.get(execution.forked_from)
        if original is None:
            found.note("what some forks were forked from isn't stored any more")
        else:
            _the_same(execution, inherited, original, found)


def _on_record(
    facts: Facts, fork: ExecutionFact, inherited: Sequence[CheckpointFact], found: Findings
) -> None:
    told = [
        (event.details.get("from"), event.details.get("seq"))
        for event in facts.events.get(fork.execution_id, ())
        if event.name == FORKED
    ]
    if told != [(str(fork.forked_from), len(inherited))]:
        found.violated(
            "identity.fork",
            fork.execution_id,
            f"it has inherited {len(inherited)} checkpoints, and the audit trail tells otherwise",
            forked_from=fork.forked_from,
            told=told,
        )


def _the_same(
    fork: ExecutionFact,
    inherited: Sequence[CheckpointFact],
    original: Sequence[CheckpointFact],
    found: Findings,
) -> None:
    by_seq = {entry.seq: entry for entry in original}
    for entry in inherited:
        other = by_seq.get(entry.seq)
        if other is None or _said(other) != _said(entry):
            found.violated(
                "identity.inherited",
                fork.execution_id,
                f"checkpoint {entry.seq} ({entry.kind} of {entry.step!r}) is inherited, and isn't"
                " what the original has there",
                seq=entry.seq,
                original=fork.forked_from,
                has=None if other is None else [other.kind, other.step, other.visit],
            )


def _said(entry: CheckpointFact) -> tuple[object, ...]:
    return entry.kind, entry.step, entry.visit, entry.result
