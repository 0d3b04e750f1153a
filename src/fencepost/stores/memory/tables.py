"""The facts in memory, their unique constraints, and the questions asked of them.

Nothing here is locked: the store does that.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fencepost import identity
from fencepost.effects.model import EffectRecord
from fencepost.errors import CheckpointForkError
from fencepost.records import (
    Checkpoint,
    CheckpointKind,
    Event,
    Execution,
    NewExecution,
    Phase,
    Status,
)

# The fan-outs whose join a waiting execution may be woken for. A forward fan-out doesn't count
# any more once an ancestor has sent the execution into compensation: it waits for its parent.
_JOINED_IN = {
    CheckpointKind.FAN_OUT: Phase.FORWARD,
    CheckpointKind.UNDO_FAN_OUT: Phase.COMPENSATING,
}

# A parked child takes no place: a person's answer may take days.
_PLACED = (Status.ACTIVE, Status.WAITING)


@dataclass(slots=True)
class Row:
    """An execution and the columns that only the store sees.

    Attributes:
        due_at: When the reaper looks at it, in seconds of the store's clock; None for never.
        claims: How often the reaper has taken it since its last owner.
    """

    execution: Execution
    input_digest: str
    due_at: float | None
    claims: int = 0

    def update(self, **changes: Any) -> None:
        """Replace fields of the execution."""
        self.execution = replace(self.execution, **changes)


@dataclass(slots=True)
class EffectRow:
    """An effect, and the times from which its ages are counted.

    Attributes:
        first_call_at: In seconds of the store's clock.
        last_call_at: The same.
    """

    effect: EffectRecord
    first_call_at: float
    last_call_at: float

    def update(self, **changes: Any) -> None:
        """Replace fields of the record."""
        self.effect = replace(self.effect, **changes)

    def as_of(self, now: float) -> EffectRecord:
        """The record with its ages at a moment."""
        return replace(
            self.effect,
            since_first_call=timedelta(seconds=now - self.first_call_at),
            since_last_call=timedelta(seconds=now - self.last_call_at),
        )


@dataclass(slots=True)
class Tables:
    """Executions in the order of their insertion, checkpoints, effects and audit events."""

    rows: dict[UUID, Row] = field(default_factory=dict)
    checkpoints: dict[UUID, Checkpoint] = field(default_factory=dict)
    chains: dict[UUID, list[Checkpoint]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    effects: dict[tuple[str, str], EffectRow] = field(default_factory=dict)
    _parents: set[UUID] = field(default_factory=set)
    _step_keys: set[tuple[str, CheckpointKind]] = field(default_factory=set)
    _children: dict[UUID, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def insert(self, new: NewExecution, at: datetime, due_at: float) -> Row:
        """Add an execution and the root of its chain.

        Raises:
            CheckpointForkError: There is one of that id.
        """
        if new.execution_id in self.rows:
            raise CheckpointForkError(f"execution {new.execution_id} exists already")
        execution, start = as_created(new, at)
        self.append(start)
        due = due_at if new.status is Status.ACTIVE else None
        row = self.rows[new.execution_id] = Row(execution, new.input_digest, due)
        if new.parent_id is not None:
            self._children[new.parent_id].append(row)
        return row

    def append(self, entry: Checkpoint) -> None:
        """Extend a chain, where no unique constraint forbids it.

        Raises:
            CheckpointForkError: One does.
        """
        named = (entry.step_key, entry.kind)
        if (
            entry.checkpoint_id in self.checkpoints
            or entry.parent_checkpoint_id in self._parents
            or named in self._step_keys
        ):
            raise CheckpointForkError(
                f"execution {entry.execution_id}: checkpoint {entry.seq} of kind {entry.kind}"
                f" for {entry.step_key} would fork or repeat the chain"
            )
        self.checkpoints[entry.checkpoint_id] = entry
        self.chains.setdefault(entry.execution_id, []).append(entry)
        self._step_keys.add(named)
        if entry.parent_checkpoint_id is not None:
            self._parents.add(entry.parent_checkpoint_id)

    def add_event(self, event: Event, at: datetime) -> None:
        """Append to the audit trail, numbering it from 1."""
        details = stored(dict(event.details))
        self.events.append(
            replace(event, event_id=len(self.events) + 1, at=event.at or at, details=details)
        )

    def children_of(self, parent_id: UUID, step: str, visit: int) -> list[Row]:
        """Every execution of every child's line of a fan-out."""
        return [
            row
            for row in self._children.get(parent_id, ())
            if (row.execution.parent_step, row.execution.parent_visit) == (step, visit)
        ]

    def awaited(self, row: Row) -> list[Row] | None:
        """The children that a waiting execution waits for, or None if it waits for its parent."""
        execution = row.execution
        head = self.checkpoints[execution.head]
        if _JOINED_IN.get(head.kind) is not execution.phase:
            return None
        return self.children_of(execution.execution_id, head.step, head.visit)

    def joined(self, row: Row) -> bool:
        """Whether it waits for children that have all ended."""
        children = self.awaited(row)
        return children is not None and all(child.execution.status.ended for child in children)

    def admissible(self, row: Row) -> list[Row]:
        """Queued children that have a free place, by index."""
        children = self.awaited(row) or []
        queued = [child for child in children if child.execution.status is Status.QUEUED]
        queued.sort(key=lambda child: child.execution.child_index or 0)
        cap = row.execution.max_concurrency
        if cap is None:
            return queued
        placed = sum(child.execution.status in _PLACED for child in children)
        return queued[: max(0, cap - placed)]

    def descendants(self, execution_ids: Iterable[UUID]) -> Iterator[Row]:
        """Children of any depth."""
        for execution_id in execution_ids:
            for row in self._children.get(execution_id, ()):
                yield row
                yield from self.descendants([row.execution.execution_id])


def stored(value: Any) -> Any:
    """A value as a JSON column gives it back: equal, and shared with nobody."""
    return json.loads(json.dumps(value))


def as_created(new: NewExecution, at: datetime) -> tuple[Execution, Checkpoint]:
    """The row and the root of the chain that an insert makes."""
    start = Checkpoint(
        checkpoint_id=identity.start_checkpoint_id(new.execution_id),
        execution_id=new.execution_id,
        seq=0,
        parent_checkpoint_id=None,
        kind=CheckpointKind.START,
        step="start",
        visit=1,
        step_key=identity.step_key(new.execution_id, "start", 1),
        epoch=0,
        owner="",
        attempt=0,
        result=stored(new.input),
        created_at=at,
    )
    execution = Execution(
        execution_id=new.execution_id,
        saga=new.saga,
        version=new.version,
        business_key=new.business_key,
        lineage_id=new.lineage_id,
        root_id=new.root_id,
        parent_id=new.parent_id,
        parent_step=new.parent_step,
        parent_visit=new.parent_visit,
        child_index=new.child_index,
        status=new.status,
        phase=Phase.FORWARD,
        epoch=0,
        owner=None,
        head=start.checkpoint_id,
        head_seq=0,
        recoveries=0,
        attempt=0,
        max_concurrency=None,
        input=stored(new.input),
        result=None,
        error=None,
        parked_reason=None,
        created_at=at,
        ended_at=None,
    )
    return execution, start
