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
    """Waits for its children, a time or a signal; nobody holds a lease."""
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
    PAST_PIVOT = "past-pivot"
    """Forward, with no way back: what fails now is tried again, or parked."""
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
    DECISION = "decision"
    """Which way a branch or a loop went."""
    WAIT = "wait"
    """From here it waits for a time or a signal."""
    WOKEN = "woken"
    """The time has come, or the signal."""
    STOP = "stop"
    """Enough children of a fan-out have succeeded: the others are told to stop."""
    REOPENED = "reopened"
    """A person had a failed execution go on, from the step that failed."""


LOWEST_PRIORITY, DEFAULT_PRIORITY, HIGHEST_PRIORITY = 0, 5, 9


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
        queue: Where its next command belongs; None for where Celery routes by itself.
        priority: 0 to 9; of two that are due, the higher one is dispatched first.
        paused_at: Since when nothing of it is begun; None where it isn't paused.
        deadline_at: When it is turned back, should it not have ended or passed its pivot.
        wake_at: When its wait is over, if it waits for a time.
        waits_for: The signal that it waits for.
        turned_back: Why it has to undo its work, until its chain tells it: an `ErrorInfo`.
        directive: What a person has decided about the step in hand, until that is committed.
        forked_from: The execution whose chain this one's begins with.
        fenced_owner: Who owned it when it was last turned back; its lease counts for nothing.
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
    queue: str | None = None
    priority: int = DEFAULT_PRIORITY
    paused_at: datetime | None = None
    deadline_at: datetime | None = None
    wake_at: datetime | None = None
    waits_for: str | None = None
    turned_back: Any = None
    directive: Any = None
    forked_from: UUID | None = None
    fenced_owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExecution:
    """An execution to be inserted, with the root of its chain.

    Attributes:
        deadline_in: Until it is turned back, from its insertion.
        deadline_at: The same as a moment, for what continues an execution that has one.
        prefix: For a fork: what of another chain comes after its root, oldest first. It is stored
            under this execution's id, with epoch 0: no owner of this execution has done it.
        phase: The direction in which it begins: past its pivot, where the prefix is.
    """

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
    queue: str | None = None
    priority: int = DEFAULT_PRIORITY
    deadline_in: timedelta | None = None
    deadline_at: datetime | None = None
    forked_from: UUID | None = None
    prefix: tuple[Checkpoint, ...] = ()
    phase: Phase = Phase.FORWARD


@dataclass(frozen=True, slots=True)
class Acquired:
    """What a new owner gets: the row as it now is, the chain, and whom it took over from.

    Attributes:
        at: The store's time at the acquisition.
    """

    execution: Execution
    chain: tuple[Checkpoint, ...]
    taken_over_from: str | None
    at: datetime


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
        stop_children_of: (step, visit) of the fan-out whose live children are turned back.
        tells: Why descendants are turned back, with `raise_epochs` or `stop_children_of`: an
            `ErrorInfo` in its stored form.
        due_in: When the reaper looks again if nobody does anything.
        queue: Where what comes next belongs.
        wakes_at_failures: A waiting parent is woken once this many children have failed;
        wakes_at_successes: or once this many have succeeded; else once all have ended.
        wake_in: A wait's length, by the store's clock from the commit on.
        wake_at: Or the moment at which it ends.
        waits_for: The signal that ends the wait. One that is already there ends it at once.
        consumes: The signal that this checkpoint takes; it is taken by no other.
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
    stop_children_of: tuple[str, int] | None = None
    tells: Any = None
    queue: str | None = None
    wakes_at_failures: int | None = None
    wakes_at_successes: int | None = None
    wake_in: timedelta | None = None
    wake_at: datetime | None = None
    waits_for: str | None = None
    consumes: UUID | None = None

    @property
    def plain(self) -> bool:
        """Whether the commit touches nothing but the execution's own row and chain."""
        return not (
            self.children
            or self.raise_epochs
            or self.undo_children_of
            or self.stop_children_of
            or self.waits_for
            or self.consumes
        )

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


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSignal:
    """A signal to be sent to an execution.

    Attributes:
        name: What waits name it by.
        payload: JSON-compatible.
        key: Of the sender's choice; a second signal with it is not stored. None for no such check.
        by: Who sends it.
    """

    signal_id: UUID
    execution_id: UUID
    name: str
    payload: Any
    key: str | None = None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSignal:
    """A stored signal.

    Attributes:
        consumed_by: The step key of the wait that took it.
        rejected: Why no wait can take it.
    """

    signal_id: UUID
    execution_id: UUID
    name: str
    payload: Any
    key: str | None
    by: str
    sent_at: datetime
    consumed_by: str | None = None
    rejected: str | None = None


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
    CANCELLED = "execution.cancelled"
    DEADLINE_PASSED = "execution.deadline-passed"
    PAUSED = "execution.paused"
    RESUMED = "execution.resumed"
    REOPENED = "execution.reopened"
    FORKED = "execution.forked"
    REPINNED = "execution.repinned"
    SIGNAL_SENT = "signal.sent"
    SIGNAL_REJECTED = "signal.rejected"
    PRUNED = "executions.pruned"
