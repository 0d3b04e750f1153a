"""What is stored, as read: the only thing that a check may look at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from fencepost.verify.names import ENDED
from fencepost.verify.timeline import Timeline


@dataclass(frozen=True, slots=True)
class ExecutionFact:
    """A row of `fencepost_executions`.

    Attributes:
        scheduled: Whether the reaper will ever look at it (`due_at` is set).
        wake_at: When its wait is over, if it waits for a time.
        waits_for: The signal that it waits for.
        turned_back: Why it has to undo its work, until its chain tells it.
        forked_from: The execution whose chain this one's begins with.
    """

    execution_id: UUID
    saga: str
    version: str
    business_key: str | None
    lineage_id: UUID
    root_id: UUID
    parent_id: UUID | None
    parent_step: str | None
    parent_visit: int | None
    child_index: int | None
    status: str
    phase: str
    epoch: int
    owner: str | None
    head: UUID
    head_seq: int
    input: Any
    result: Any
    scheduled: bool
    error: Any = None
    ended_at: datetime | None = None
    paused_at: datetime | None = None
    wake_at: datetime | None = None
    waits_for: str | None = None
    turned_back: Any = None
    forked_from: UUID | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing of it will run any more."""
        return self.status in ENDED

    @property
    def continued_as(self) -> str | None:
        """The id of the execution that goes on in its place, as the row tells it."""
        if self.status != "continued" or not isinstance(self.result, dict):
            return None
        return self.result.get("continued_as")


@dataclass(frozen=True, slots=True)
class CheckpointFact:
    """A row of `fencepost_checkpoints`."""

    checkpoint_id: UUID
    execution_id: UUID
    seq: int
    parent_checkpoint_id: UUID | None
    kind: str
    step: str
    visit: int
    step_key: str
    epoch: int
    owner: str
    result: Any
    created_at: datetime

    @property
    def inherited(self) -> bool:
        """Whether a fork has it from another execution's chain: no owner of its own did it."""
        return self.epoch == 0 and self.seq > 0

    @property
    def of(self) -> tuple[str, int]:
        """The step and the visit that it is about."""
        return self.step, self.visit

    def told(self, *path: str) -> Any:
        """What its result has at a path of names; None where it has nothing."""
        value = self.result
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value


@dataclass(frozen=True, slots=True)
class EffectFact:
    """A row of `fencepost_effects`.

    Attributes:
        epoch: Of the owner who wrote it last.
        confirmed_at: By the database server's clock.
        resolved: Whether a person decided about it.
    """

    sink: str
    key: str
    execution_id: UUID
    step_key: str
    effect: str
    kind: str
    status: str
    epoch: int
    owner: str
    confirmed_at: datetime | None
    resolved: bool


@dataclass(frozen=True, slots=True)
class EventFact:
    """A row of `fencepost_events`."""

    event_id: int
    execution_id: UUID
    name: str
    epoch: int
    current_epoch: int | None
    owner: str | None
    current_owner: str | None
    step_key: str | None
    sink: str | None
    payload_digest: str | None
    details: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class SignalFact:
    """A row of `fencepost_signals`.

    Attributes:
        consumed_by: The step key of what took it.
        rejected: Why no wait can take it.
    """

    signal_id: UUID
    execution_id: UUID
    name: str
    payload: Any
    consumed_by: str | None
    rejected: str | None

    @property
    def pending(self) -> bool:
        """Whether a wait can still take it."""
        return self.consumed_by is None and self.rejected is None


@dataclass(frozen=True, slots=True)
class LeaseFact:
    """What Redis knows of an execution.

    Attributes:
        owner: Whose lease it is, live or expired; None if only the epoch is remembered.
        epoch: The settled epoch; None if there is none.
        listed: Whether it is in the sorted set of held leases.
        sql_epoch: SQL's epoch, read no earlier than the lease.
    """

    execution_id: UUID
    owner: str | None
    epoch: int | None
    listed: bool
    sql_epoch: int


@dataclass(frozen=True, slots=True)
class MessageFact:
    """A message of Fencepost's own tasks in the broker.

    Attributes:
        task: `fencepost.run`, or `fencepost.join` (then the execution is the parent to wake).
        place: The queue's key, or the hash of unacknowledged messages.
    """

    execution_id: UUID
    task: str
    place: str


@dataclass(frozen=True)
class Facts:
    """All that is stored about one or more whole runs.

    A run is an execution that somebody started, with its children at any depth and whatever
    continues them. SQL's part is one consistent snapshot; Redis is read after it.

    Attributes:
        executions: By id.
        chains: Every execution's checkpoints, by `seq`.
        events: Every execution's audit events, oldest first.
        effects: Every execution's effects, in no order that matters.
        leases: What Redis knows, of those executions of which it knows anything.
        messages: What the broker holds, by execution.
        leases_unread: Why `leases` is empty without having been looked at.
        messages_unread: The same for `messages`.
        strays: Ids that checkpoints, events, effects or signals name and no row has; looked for in
            the whole database only.
        signals: What was sent to each execution, oldest first.
        origins: The chains of those that executions were forked from, as far as they are stored.
    """

    executions: Mapping[UUID, ExecutionFact]
    chains: Mapping[UUID, tuple[CheckpointFact, ...]]
    events: Mapping[UUID, tuple[EventFact, ...]]
    effects: Mapping[UUID, tuple[EffectFact, ...]]
    leases: Mapping[UUID, LeaseFact]
    messages: Mapping[UUID, tuple[MessageFact, ...]]
    leases_unread: str | None = None
    messages_unread: str | None = None
    strays: tuple[UUID, ...] = ()
    signals: Mapping[UUID, tuple[SignalFact, ...]] = field(default_factory=dict)
    origins: Mapping[UUID, tuple[CheckpointFact, ...]] = field(default_factory=dict)

    @property
    def roots(self) -> list[UUID]:
        """Ids of the executions that somebody started."""
        return [e.execution_id for e in self.executions.values() if e.root_id == e.execution_id]

    @cached_property
    def children(self) -> Mapping[UUID, tuple[ExecutionFact, ...]]:
        """Every execution's children, those that were continued as new included."""
        found: dict[UUID, list[ExecutionFact]] = defaultdict(list)
        for execution in self.executions.values():
            if execution.parent_id is not None:
                found[execution.parent_id].append(execution)
        return {parent: tuple(children) for parent, children in found.items()}

    @cached_property
    def lines(self) -> Mapping[UUID, tuple[ExecutionFact, ...]]:
        """The executions of each continue-as-new line, by the id of the line's first."""
        found: dict[UUID, list[ExecutionFact]] = defaultdict(list)
        for execution in self.executions.values():
            found[execution.lineage_id].append(execution)
        return {first: tuple(line) for first, line in found.items()}

    def fanned_out(self, parent_id: UUID, step: str, visit: int) -> tuple[ExecutionFact, ...]:
        """The children of one fan-out, by index; of each line that was continued all of them."""
        found = [
            child
            for child in self.children.get(parent_id, ())
            if (child.parent_step, child.parent_visit) == (step, visit)
        ]
        return tuple(sorted(found, key=lambda child: child.child_index or 0))

    def descendants(self, execution_id: UUID) -> Iterator[ExecutionFact]:
        """Children at any depth."""
        todo, seen = [execution_id], {execution_id}
        while todo:
            for child in self.children.get(todo.pop(), ()):
                if child.execution_id not in seen:
                    seen.add(child.execution_id)
                    todo.append(child.execution_id)
                    yield child

    @cached_property
    def timelines(self) -> Mapping[UUID, Timeline]:
        """Who owned each execution, and from which checkpoint on."""
        return {
            execution_id: Timeline(execution_id, self.events.get(execution_id, ()))
            for execution_id in self.executions
        }
