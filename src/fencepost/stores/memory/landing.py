"""What one accepted commit changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost.errors import CheckpointForkError
from fencepost.records import Checkpoint, CheckpointKind, Commit, Status
from fencepost.stores.memory import signals, turning
from fencepost.stores.memory.moment import Moment
from fencepost.stores.memory.tables import Row, stored


def extend(moment: Moment, row: Row, commit: Commit) -> Checkpoint:
    """Extend the chain and do all that belongs to it; nothing at all if it can't be done.

    The commit's fence has been checked.

    Raises:
        CheckpointForkError: The head is another, or a unique constraint is in the way, or a
            signal can't be taken.
    """
    _check(moment, row, commit)
    signals.check(moment.tables, commit)
    entry = replace(commit.checkpoint(moment.at), result=stored(commit.result))
    moment.tables.append(entry)
    _update(moment, row, commit)
    for new in commit.children:
        moment.insert(new, row.execution.paused_at)
    signals.land(moment, row, commit)
    turning.land(moment, row, commit)
    return entry


def _check(moment: Moment, row: Row, commit: Commit) -> None:
    execution = row.execution
    if (execution.head, execution.head_seq + 1) != (commit.parent, commit.seq):
        raise CheckpointForkError(
            f"execution {execution.execution_id}: checkpoint {commit.seq} does not continue"
            f" the chain, whose head is {execution.head} with number {execution.head_seq}",
            execution_id=str(execution.execution_id),
            held=str(commit.parent),
            current=str(execution.head),
        )
    ids = [new.execution_id for new in commit.children]
    if len(set(ids)) < len(ids) or any(id_ in moment.tables.rows for id_ in ids):
        raise CheckpointForkError(
            f"execution {execution.execution_id}: an execution that {commit.step} starts"
            " exists already",
            execution_id=str(execution.execution_id),
        )


def _update(moment: Moment, row: Row, commit: Commit) -> None:
    wake_at = commit.wake_at if commit.wake_in is None else moment.at + commit.wake_in
    changes: dict[str, Any] = {
        "head": commit.checkpoint_id,
        "head_seq": commit.seq,
        "status": commit.status,
        "phase": commit.phase,
        "max_concurrency": commit.max_concurrency,
        "queue": commit.queue,
        "wake_at": wake_at,
        "waits_for": commit.waits_for,
        "directive": None,
        "result": stored(commit.outcome),
        "error": stored(commit.error),
        "recoveries": 0,
        "attempt": 0,
        "ended_at": moment.at if commit.status.ended else None,
    }
    if commit.status is not Status.ACTIVE:
        changes["owner"] = None
    if commit.kind is CheckpointKind.COMPENSATING or commit.status.ended:
        changes["turned_back"] = None
    row.update(**changes)
    row.wakes_at_failures = commit.wakes_at_failures
    row.wakes_at_successes = commit.wakes_at_successes
    moment.due(row, commit.due_in if wake_at is None else wake_at - moment.at)
    if commit.status.ended or (commit.waits_for is not None and wake_at is None):
        row.due_at = None
