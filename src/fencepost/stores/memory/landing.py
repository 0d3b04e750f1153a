"""What one accepted commit changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from fencepost.errors import CheckpointForkError
from fencepost.fence import FenceToken
from fencepost.records import (
    Checkpoint,
    Commit,
    Event,
    EventName,
    NewExecution,
    Phase,
    Status,
)
from fencepost.stores.memory.tables import Row, Tables, stored


@dataclass(frozen=True, slots=True)
class Landing:
    """A commit whose fence has been checked, and the time at which it lands.

    Attributes:
        now: Seconds of the store's clock.
        at: The same moment.
        grace: How long a new execution's message has to arrive before the reaper looks.
    """

    tables: Tables
    now: float
    at: datetime
    grace: timedelta

    def extend(self, row: Row, commit: Commit) -> Checkpoint:
        """Extend the chain and do all that belongs to it; nothing at all if it can't be done.

        Raises:
            CheckpointForkError: The head is another, or a unique constraint is in the way.
        """
        self._check(row, commit)
        entry = self._entry(commit)
        self.tables.append(entry)
        self._update(row, commit)
        if commit.raise_epochs:
            self._raise_epochs(row, commit)
        for new in commit.children:
            self.insert(new)
        if commit.undo_children_of is not None:
            self._undo_children(row, *commit.undo_children_of)
        return entry

    def insert(self, new: NewExecution) -> Row:
        """Add an execution, and its message's grace before the reaper looks."""
        row = self.tables.insert(new, self.at, self.now + self.grace.total_seconds())
        self.note(row, EventName.STARTED)
        return row

    def admit(self, parent: Row, due_in: timedelta) -> list[Row]:
        """Activate queued children of a waiting parent, as far as its cap allows."""
        if parent.execution.status is not Status.WAITING:
            return []
        admitted = self.tables.admissible(parent)
        for row in admitted:
            row.update(status=Status.ACTIVE)
            row.due_at = self.now + due_in.total_seconds()
            row.claims = 0
        return admitted

    def note(self, row: Row, name: EventName, **facts: Any) -> None:
        """Append an audit event about the execution as it now is."""
        execution = row.execution
        facts = {"epoch": execution.epoch, "owner": execution.owner} | facts
        event = Event(execution_id=execution.execution_id, name=name, **facts)
        self.tables.add_event(event, self.at)

    def _check(self, row: Row, commit: Commit) -> None:
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
        if len(set(ids)) < len(ids) or any(id_ in self.tables.rows for id_ in ids):
            raise CheckpointForkError(
                f"execution {execution.execution_id}: an execution that {commit.step} starts"
                " exists already",
                execution_id=str(execution.execution_id),
            )

    def _entry(self, commit: Commit) -> Checkpoint:
        return replace(commit.checkpoint(self.at), result=stored(commit.result))

    def _update(self, row: Row, commit: Commit) -> None:
        changes: dict[str, Any] = {
            "head": commit.checkpoint_id,
            "head_seq": commit.seq,
            "status": commit.status,
            "phase": commit.phase,
            "max_concurrency": commit.max_concurrency,
            "result": stored(commit.outcome),
            "error": stored(commit.error),
            "recoveries": 0,
            "attempt": 0,
            "ended_at": self.at if commit.status.ended else None,
        }
        if commit.status is not Status.ACTIVE:
            changes["owner"] = None
        row.update(**changes)
        due_at = self.now + commit.due_in.total_seconds()
        row.due_at = None if commit.status.ended else due_at
        row.claims = 0

    def _raise_epochs(self, row: Row, commit: Commit) -> None:
        token = commit.token
        self.note(
            row,
            EventName.COMPENSATING,
            step_key=token.step_key,
            details={"failure": commit.result["failure"]["code"]},
        )
        row.update(epoch=row.execution.epoch + 1)
        self._note_raised(row, token)
        for below in self.tables.descendants([token.execution_id]):
            changes: dict[str, Any] = {"phase": Phase.COMPENSATING, "owner": None}
            if not below.execution.status.ended:
                changes["status"] = Status.WAITING
            below.update(epoch=below.execution.epoch + 1, **changes)
            self._note_raised(below, token)

    def _note_raised(self, row: Row, token: FenceToken) -> None:
        details = {"by": str(token.execution_id), "head_seq": row.execution.head_seq}
        self.note(row, EventName.EPOCH_RAISED, owner=token.owner, details=details)

    def _undo_children(self, row: Row, step: str, visit: int) -> None:
        for child in self.tables.children_of(row.execution.execution_id, step, visit):
            undoable = child.execution.status in (Status.SUCCEEDED, Status.WAITING)
            if undoable and child.execution.phase is Phase.COMPENSATING:
                # Undoing is work like any other: the concurrency cap holds for it too.
                child.update(status=Status.QUEUED, ended_at=None)
                child.due_at = None
        self.admit(row, timedelta(0))
