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
    SentSignal,
    Status,
)


@dataclass(slots=True)
class Row:
    """An execution and the columns that only the store sees.

    Attributes:
        due_at: When the reaper looks at it, in seconds of the store's clock; None for never.
        claims: How often the reaper has taken it since its last owner.
        wakes_at_failures: A waiting parent is woken by so many failed children,
        wakes_at_successes: or by so many that have succeeded.
    """

    execution: Execution
    input_digest: str
    due_at: float | None
    claims: int = 0
    wakes_at_failures: int | None = None
    wakes_at_successes: int | None = None

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
    """Executions in the order of their insertion, checkpoints, effects, signals, audit events.

    Signals are in the order of their arrival.
    """

    rows: dict[UUID, Row] = field(default_factory=dict)
    checkpoints: dict[UUID, Checkpoint] = field(default_factory=dict)
    chains: dict[UUID, list[Checkpoint]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    effects: dict[tuple[str, str], EffectRow] = field(default_factory=dict)
    signals: dict[UUID, SentSignal] = field(default_factory=dict)
    _parents: set[UUID] = field(default_factory=set)
    _step_keys: set[tuple[str, CheckpointKind]] = field(default_factory=set)
    _children: dict[UUID, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def insert(self, new: NewExecution, at: datetime, due_at: float) -> Row:
        """Add an execution and the beginning of its chain.

        Raises:
            CheckpointForkError: There is one of that id.
        """
        if new.execution_id in self.rows:
            raise CheckpointForkError(f"execution {new.execution_id} exists already")
        execution, chain = as_created(new, at)
        for entry in chain:
            self.append(entry)
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

    def children_at_any_step(self, parent_id: UUID) -> list[Row]:
        """Every execution of the lines of all children."""
        return list(self._children.get(parent_id, ()))

    def descendants(self, execution_ids: Iterable[UUID]) -> Iterator[Row]:
        """Children of any depth, those of one depth before those of the next."""
        level = list(execution_ids)
        while level:
            below = [row for parent in level for row in self.children_at_any_step(parent)]
            yield from below
            level = [row.execution.execution_id for row in below]

    def pending(self, execution_id: UUID, name: str | None) -> list[SentSignal]:
        """Signals of that name that can still be taken, oldest first."""
        return [
            signal
            for signal in self.signals.values()
            if (signal.execution_id, signal.name) == (execution_id, name)
            and signal.consumed_by is None
            and signal.rejected is None
        ]


def stored(value: Any) -> Any:
    """A value as a JSON column gives it back: equal, and shared with nobody."""
    return json.loads(json.dumps(value))


def as_created(new: NewExecution, at: datetime) -> tuple[Execution, list[Checkpoint]]:
    """The row and the beginning of the chain that an insert makes."""
    chain = _first_checkpoints(new, at)
    deadline_at = new.deadline_at if new.deadline_in is None else at + new.deadline_in
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
        phase=new.phase,
        epoch=0,
        owner=None,
        head=chain[-1].checkpoint_id,
        head_seq=chain[-1].seq,
        recoveries=0,
        attempt=0,
        max_concurrency=None,
        input=stored(new.input),
        result=None,
        error=None,
        parked_reason=None,
        created_at=at,
        ended_at=None,
        queue=new.queue,
        priority=new.priority,
        deadline_at=deadline_at,
        forked_from=new.forked_from,
    )
    return execution, chain


def _first_checkpoints(new: NewExecution, at: datetime) -> list[Checkpoint]:
    """The root of a chain, and what a fork inherits."""
    root = Checkpoint(
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
    chain = [root]
    for seq, entry in enumerate(new.prefix, start=1):
        inherited = replace(
            entry,
            checkpoint_id=identity.inherited_checkpoint_id(new.execution_id, seq),
            execution_id=new.execution_id,
            seq=seq,
            parent_checkpoint_id=chain[-1].checkpoint_id,
            step_key=identity.step_key(new.execution_id, entry.step, entry.visit),
            epoch=0,
            owner="",
            result=stored(entry.result),
            created_at=at,
        )
        chain.append(inherited)
    return chain
