"""Invariant 2: epochs start at 1 and grow by one per owner; Redis is not ahead of SQL."""

from __future__ import annotations

from fencepost.verify.facts import ExecutionFact, Facts
from fencepost.verify.invariant import Findings
from fencepost.verify.timeline import Timeline


def check(facts: Facts, found: Findings) -> None:
    """Epochs in the audit trail, on the rows, in the chains and in Redis."""
    for execution_id, execution in facts.executions.items():
        timeline = facts.timelines[execution_id]
        found.examined("epochs", len(timeline.tenures))
        _no_gap(execution, timeline, found)
        _row(execution, timeline, found)
        _owners(facts, execution, timeline, found)
    if facts.leases_unread is not None:
        found.note(f"Redis's epochs were not looked at: {facts.leases_unread}")
    for lease in facts.leases.values():
        if lease.epoch is None:
            continue
        found.examined("settled epochs")
        if lease.epoch > lease.sql_epoch:
            found.violated(
                "epoch.redis-ahead",
                lease.execution_id,
                f"Redis has settled epoch {lease.epoch}, SQL is at {lease.sql_epoch}",
                redis=lease.epoch,
                sql=lease.sql_epoch,
            )


def _no_gap(execution: ExecutionFact, timeline: Timeline, found: Findings) -> None:
    for expected, tenure in enumerate(timeline.tenures, start=1):
        if tenure.epoch != expected:
            found.violated(
                "epoch.gap",
                execution.execution_id,
                f"owner number {expected} has epoch {tenure.epoch}",
                epochs=[t.epoch for t in timeline.tenures],
                owner=tenure.owner,
            )
            return


def _row(execution: ExecutionFact, timeline: Timeline, found: Findings) -> None:
    last = timeline.tenures[-1] if timeline.tenures else None
    recorded = 0 if last is None else last.epoch
    if execution.epoch != recorded:
        found.violated(
            "epoch.row",
            execution.execution_id,
            f"the row is at epoch {execution.epoch}, the audit trail at {recorded}",
            row=execution.epoch,
            audit_trail=recorded,
        )
    elif execution.owner is not None and not timeline.owned(execution.epoch, execution.owner):
        found.violated(
            "epoch.row-owner",
            execution.execution_id,
            f"the row's owner has never acquired epoch {execution.epoch}",
            owner=execution.owner,
        )


def _owners(facts: Facts, execution: ExecutionFact, timeline: Timeline, found: Findings) -> None:
    """Whoever committed a checkpoint had acquired its epoch, and had done so before."""
    for checkpoint in facts.chains.get(execution.execution_id, ()):
        # What a fork has inherited is of no owner of its own.
        if checkpoint.kind == "start" or (execution.forked_from and checkpoint.inherited):
            continue
        found.examined("checkpoints")
        if not timeline.owned(checkpoint.epoch, checkpoint.owner):
            found.violated(
                "epoch.stranger",
                execution.execution_id,
                f"checkpoint {checkpoint.seq} was committed by one who never held"
                f" epoch {checkpoint.epoch}",
                seq=checkpoint.seq,
                owner=checkpoint.owner,
                epoch=checkpoint.epoch,
            )
            continue
        tenure = timeline.of(checkpoint.epoch)
        if tenure is not None and not tenure.began_before(checkpoint):
            found.violated(
                "epoch.too-early",
                execution.execution_id,
                f"checkpoint {checkpoint.seq} was there before its epoch {checkpoint.epoch}",
                seq=checkpoint.seq,
                epoch=checkpoint.epoch,
                began_after=tenure.after_seq,
            )
