"""What the stores keep: plain, frozen records without behaviour of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from fencepost.fence import FenceToken


class Status(StrEnum):
    """Where an execution is in its life."""

    QUEUED = "queued"
    """A child that waits for a free place under its parent's concurrency cap."""
    ACTIVE = "active"
    """Work is owed: somebody runs it, or a worker must be found."""
    WAITING = "waiting"
    """Waits for its children; nobody holds a lease."""
    PARKED = "parked"
    """Stopped for a person."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Ended by an error before anything that needs undoing had been done."""
    COMPENSATED = "compensated"
    """Ended by an error, and all that had been done is undone."""
    CONTINUED = "continued"
    """Ended by starting the next execution of its line."""

    @property
    def ended(self) -> bool:
        """Whether nothing will run any more."""
        return self in ENDED


ENDED = frozenset({Status.SUCCEEDED, Status.FAILED, Status.COMPENSATED, Status.CONTINUED})


class Phase(StrEnum):
    """The direction in which an execution moves."""

    FORWARD = "forward"
    COMPENSATING = "compensating"


class CheckpointKind(StrEnum):
    """What a checkpoint records."""

    START = "start"
    STEP = "step"
    FAN_OUT = "fan-out"
    JOIN = "join"
    COMPENSATING = "compensating"
    """A step failed for good (or the parent failed): from here on, undo."""
    UNDO_FAN_OUT = "undo-fan-out"
    UNDO = "undo"
    STEP_FAILED = "step-failed"
    """In a durable task: a step failed for good; the task's body was told so."""
    TASK_FAILED = "task-failed"
    """A durable task's body failed for good; the execution ends with that error."""
    BRANCH_FAILED = "branch-failed"
    """A step of an error branch failed for good; the execution ends with that error."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One committed entry of an execution's chain."""

    checkpoint_id: UUID
    execution_id: UUID
    seq: int
    parent_checkpoint_id: UUID | None
    kind: CheckpointKind
    step: str
    visit: int
    step_key: str
    epoch: int
    owner: str
    attempt: int
    result: Any
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Execution:
    """One logical run of a saga. Its id never changes, whoever runs it.

    Attributes:
        epoch: The authority on ownership; 0 until the first owner.
        owner: Who holds it; None when it was handed back.
        recoveries: Takeovers since the last checkpoint.
        attempt: Failed attempts of the step in hand.
        lineage_id: First execution of a continue-as-new line.
        root_id: The execution that a user started, for a child of any depth.
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
    status: Status
    phase: Phase
    epoch: int
    owner: str | None
    head: UUID
    head_seq: int
    recoveries: int
    attempt: int
    max_concurrency: int | None
    input: Any
    result: Any
    error: Any
    parked_reason: str | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExecution:
    """An execution to be inserted, with the root of its chain."""

    execution_id: UUID
    saga: str
    version: str
    input: Any
    input_digest: str
    lineage_id: UUID
    root_id: UUID
    business_key: str | None = None
    parent_id: UUID | None = None
    parent_step: str | None = None
    parent_visit: int | None = None
    child_index: int | None = None
    status: Status = Status.ACTIVE


@dataclass(frozen=True, slots=True)
class Acquired:
    """What a new owner gets: the row as it now is, the chain, and whom it took over from."""

    execution: Execution
    chain: tuple[Checkpoint, ...]
    taken_over_from: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """Why an execution could not be acquired."""

    status: Status
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One fenced extension of the chain, and all that must land with it or not at all.

    Attributes:
        token: Whose write this is.
        parent: The head that the chain must still have.
        seq: `parent`'s seq + 1.
        status: The execution's status afterwards.
        children: Executions inserted in the same transaction (fan-out, continue-as-new).
        max_concurrency: For a fan-out: how many children may be admitted at once.
        raise_epochs: On entering compensation: the execution's own epoch (the owner stays) and
            that of every descendant (whose owner goes) grow by one, so that a late forward write
            can't land after its undo.
        undo_children_of: (step, visit) of the fan-out whose children now undo their work.
        due_in: When the reaper looks again if nobody does anything.
    """

    checkpoint_id: UUID
    token: FenceToken
    parent: UUID
    seq: int
    kind: CheckpointKind
    step: str
    visit: int
    attempt: int
    result: Any
    due_in: timedelta
    status: Status = Status.ACTIVE
    phase: Phase = Phase.FORWARD
    outcome: Any = None
    error: Any = None
    children: tuple[NewExecution, ...] = ()
    max_concurrency: int | None = None
    raise_epochs: bool = False
    undo_children_of: tuple[str, int] | None = None

    @property
    def plain(self) -> bool:
        """Whether the commit touches nothing but the execution's own row and chain."""
        return not (self.children or self.raise_epochs or self.undo_children_of)

    def checkpoint(self, created_at: datetime) -> Checkpoint:
        """The chain's entry that this commit makes if it lands."""
        return Checkpoint(
            checkpoint_id=self.checkpoint_id,
            execution_id=self.token.execution_id,
            seq=self.seq,
            parent_checkpoint_id=self.parent,
            kind=self.kind,
            step=self.step,
            visit=self.visit,
            step_key=self.token.step_key,
            epoch=self.token.epoch,
            owner=self.token.owner,
            attempt=self.attempt,
            result=self.result,
            created_at=created_at,
        )


@dataclass(frozen=True, slots=True)
class Lease:
    """A held lease, as the holder may trust it.

    Attributes:
        deadline: On the holder's monotonic clock, in seconds. Counted from before the request
            was sent, less a margin: the holder trusts its lease less than Redis does.
    """

    execution_id: UUID
    owner: str
    epoch: int
    deadline: float


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A lease as its store sees it."""

    owner: str
    epoch: int
    remaining: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An entry of the audit trail."""

    execution_id: UUID
    name: str
    epoch: int
    current_epoch: int | None = None
    owner: str | None = None
    current_owner: str | None = None
    step_key: str | None = None
    sink: str | None = None
    payload_digest: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    at: datetime | None = None
    event_id: int | None = None


class EventName(StrEnum):
    """Names of audit events. The two in capitals and `execution.lease-lost` are the fence's."""

    STARTED = "execution.started"
    LEASE_ACQUIRED = "lease.acquired"
    LEASE_RELEASED = "lease.released"
    RECOVERED = "execution.recovered"
    LEASE_LOST = "execution.lease-lost"
    ZOMBIE_WRITE_REJECTED = "ZOMBIE_WRITE_REJECTED"
    ATTEMPT_FAILED = "step.attempt-failed"
    COMPENSATING = "execution.compensating"
    EPOCH_RAISED = "execution.epoch-raised"
    PARKED = "execution.parked"
    UNPARKED = "execution.unparked"
    FENCE_RAISED = "fence.raised"
    EFFECT_IN_DOUBT = "effect.in-doubt"
    EFFECT_RESOLVED = "effect.resolved"
    VERSION_UNKNOWN = "execution.version-unknown"
