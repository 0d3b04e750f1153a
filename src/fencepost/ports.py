"""The three things that the engine needs from outside: a truth, a liveness signal, a transport."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

from fencepost.effects.model import EffectIntent, EffectRecord, EffectStatus
from fencepost.fence import FenceToken
from fencepost.limits import Limit, Usage
from fencepost.records import (
    Acquired,
    Checkpoint,
    Commit,
    Event,
    EventName,
    Execution,
    Lease,
    LeaseState,
    NewExecution,
    NewSignal,
    Refused,
    SentSignal,
)


class LeaseStore(Protocol):
    """Time-limited ownership. For liveness only: everything in it may vanish at any time.

    Expiry is decided by the store's own clock; no caller's clock is compared with another's.
    """

    def acquire(self, execution_id: UUID, owner: str, ttl: timedelta) -> Lease | None:
        """Take the lease if it is free or expired, proposing the next epoch.

        The proposal isn't remembered until `settle`. Returns None while any owner's lease is
        live, the caller's own included: owners are unique per acquisition.
        """
        ...

    def settle(self, lease: Lease, epoch: int, ttl: timedelta) -> Lease | None:
        """Write back the epoch that SQL has decided, and renew.

        None if the lease is lost: another's, vanished, expired, or settled at a later epoch.
        """
        ...

    def renew(self, lease: Lease, ttl: timedelta, *, restore: bool) -> Lease | None:
        """Extend the lease if owner and epoch are still ours.

        Args:
            lease: What is held.
            ttl: Counted from the store's clock.
            restore: Put a vanished entry back. Only allowed while the local deadline holds.

        Returns:
            The lease with its new deadline, or None when it belongs to another or is gone; an
            expired lease is gone, even if nobody has taken it yet.
        """
        ...

    def release(self, lease: Lease, *, forget: bool) -> bool:
        """Give the lease up if it is ours. `forget` drops the epoch too (execution ended)."""
        ...

    def state(self, execution_ids: Sequence[UUID]) -> list[LeaseState | None]:
        """For each execution its live lease, or None."""
        ...

    def claim_expired(self, limit: int, hold: timedelta) -> list[UUID]:
        """Executions whose lease has expired, each hidden from other claimants for `hold`.

        They stay free to be acquired, and come again until acquired, released or discarded.
        """
        ...

    def discard(self, execution_ids: Iterable[UUID]) -> None:
        """Forget executions that have ended, unless somebody holds a live lease on them."""
        ...


class Transaction(Protocol):
    """An open transaction on the ledger's database, for a transactional step."""

    @property
    def session(self) -> Any:
        """A `sqlalchemy.orm.Session` (SQL stores); begins at its first statement."""
        ...

    def commit(self, commit: Commit) -> Checkpoint:
        """Check the fence under the execution row's lock, extend the chain, commit it all.

        Raises:
            StaleLeaseFenceError: Another owner; everything was rolled back.
        """
        ...


class ExecutionStore(Protocol):
    """The truth: executions, their chains, the audit trail."""

    def create(self, new: NewExecution, *, session: Any = None) -> tuple[Execution, bool]:
        """Insert an execution and the root of its chain; idempotent by id.

        Args:
            new: What to insert. If it has a business key, the key decides the id.
            session: The caller's own `Session` or `Connection`, whose transaction it joins.

        Returns:
            The stored execution, and whether this call made it.

        Raises:
            BusinessKeyConflictError: The id exists with another input.
        """
        ...

    def get(self, execution_id: UUID) -> Execution | None:
        """The execution's row as it is now."""
        ...

    def chain(self, execution_id: UUID) -> tuple[Checkpoint, ...]:
        """All checkpoints, in order."""
        ...

    def acquire(
        self, execution_id: UUID, owner: str, proposed_epoch: int, due_in: timedelta
    ) -> Acquired | Refused:
        """Become the owner: one compare-and-set, only where `epoch < proposed_epoch`.

        `Refused` tells the state and epoch: not runnable, or the proposal is stale. Nothing that
        is paused is runnable. A waiting execution is runnable once the children that it waits for
        have ended, or as many have failed or succeeded as it wanted to be woken at; once its time
        has come; once the signal that it waits for is there. One that was turned back from above
        waits for its parent instead.

        Raises:
            ExecutionNotFoundError: There is no such execution.
        """
        ...

    def commit(self, commit: Commit) -> Checkpoint:
        """Extend the chain; a plain commit is one statement and one round trip.

        A repetition of a commit that has landed returns the stored checkpoint.

        Raises:
            ExecutionLeaseLostError: The epoch or owner isn't the token's any more.
            CheckpointForkError: The owner is right and the head isn't.
        """
        ...

    def transaction(self, token: FenceToken) -> AbstractContextManager[Transaction]:
        """Open a transaction for a transactional step; leaving without commit rolls back.

        Where the body failed and the token has become stale meanwhile (a zombie whose insert
        met its successor's row, say), the failure is reported as what it is.

        Raises:
            StaleLeaseFenceError: On leaving with an error while another owner holds the epoch.
        """
        ...

    def record_attempt(
        self, token: FenceToken, attempt: int, error: Any, retry_in: timedelta
    ) -> None:
        """Record a failed attempt, hand the execution back, have it dispatched after `retry_in`.

        Raises:
            ExecutionLeaseLostError: Fenced.
        """
        ...

    def hand_back(self, token: FenceToken, due_in: timedelta) -> None:
        """Give the execution up without a checkpoint, so that another worker continues.

        Raises:
            ExecutionLeaseLostError: Fenced.
        """
        ...

    def wait_on(self, token: FenceToken) -> None:
        """Go back to waiting for what the head says: it was woken for nothing.

        It is found again when what it waits for is there; at once, if it has come meanwhile.

        Raises:
            ExecutionLeaseLostError: Fenced.
        """
        ...

    def park(self, token: FenceToken, reason: str, error: Any) -> None:
        """Stop the execution for a person.

        Raises:
            ExecutionLeaseLostError: Fenced.
        """
        ...

    def unpark(
        self, execution_id: UUID, why: str, *, by: str = "", directive: Any = None
    ) -> Execution:
        """Let a parked execution go on, its attempt and recovery counts at zero.

        Args:
            execution_id: Whose.
            why: Kept in the audit trail, with `by`.
            by: Who decides.
            directive: What the next owner is to do about the step in hand instead of running it;
                stays on the row until the next commit.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: Nothing parked there.
        """
        ...

    def turn_back(
        self,
        execution_id: UUID,
        cause: Any,
        event: EventName,
        details: Mapping[str, Any],
        *,
        only_forward: bool = False,
    ) -> Execution:
        """Have an execution undo its work: it is fenced at once, whoever runs it.

        Its epoch and those of all its descendants grow by one, nobody owns them, their phase is
        compensating and their `turned_back` is the cause (for descendants: that their parent
        failed). It is due at once; its live descendants wait for it. A pause is lifted.

        Args:
            execution_id: Whose; of one that was continued as new, what continues it.
            cause: An `ErrorInfo` in its stored form.
            event: The name under which it is audited.
            details: Of that event.
            only_forward: Leave one alone that undoes its work already, or is parked.

        Returns:
            The execution as it then is; unchanged where `only_forward` left it alone.

        Raises:
            ExecutionNotFoundError: There is no such execution.
            ExecutionStateError: It has ended, or has passed its pivot.
        """
        ...

    def pause(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """Have nothing more of an execution and its descendants begun; what runs runs on.

        Does nothing where it is paused.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None, or it has ended.
        """
        ...

    def resume(self, execution_id: UUID, *, by: str, why: str) -> list[Execution]:
        """Lift a pause. Returns those of the execution and its descendants that are now due.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None, or it isn't paused.
        """
        ...

    def reopen(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """Let an execution go on that has failed and had nothing to undo.

        It is active again and its directive is `{"do": "reopen", "by": ..., "why": ...}`.

        Raises:
            ExecutionNotFoundError: There is no such execution.
            ExecutionStateError: It isn't `failed`; or it has a parent, which has gone on.
        """
        ...

    def send_signal(self, signal: NewSignal) -> tuple[SentSignal, bool]:
        """Store a signal; whoever waits for it is due at once, in the same transaction.

        A signal for an execution that was continued as new goes to what continues it; those that
        nobody has taken go along when it is continued.

        Returns:
            The stored signal, and whether this call stored it (its key may have been used).

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None, or it has ended.
        """
        ...

    def pending_signals(self, execution_id: UUID, name: str) -> list[SentSignal]:
        """Signals of that name that no wait has taken and nobody has rejected, oldest first."""
        ...

    def reject_signal(self, signal_id: UUID, reason: str) -> None:
        """Have no wait take a signal; audited."""
        ...

    def record(self, event: Event) -> None:
        """Append to the audit trail, in a transaction of its own."""
        ...

    def events(self, execution_ids: Sequence[UUID], *, after: int = 0) -> list[Event]:
        """Audit events of these executions with `event_id > after`, oldest first."""
        ...

    def children(self, parent_id: UUID, step: str, visit: int) -> list[Execution]:
        """The latest execution of each child's line, by index."""
        ...

    def lineage(self, execution_id: UUID) -> list[Execution]:
        """Every execution of a line and, at any depth, their children; oldest first."""
        ...

    def admit(self, parent_id: UUID, due_in: timedelta) -> list[Execution]:
        """Move queued children of a waiting parent into the places that are free."""
        ...

    def claim(self, execution_ids: Sequence[UUID], hold: timedelta) -> list[Execution]:
        """Of these, the active ones; hidden from `claim_due` as if it had claimed them."""
        ...

    def claim_due(
        self,
        limit: int,
        hold: timedelta,
        *,
        known: Collection[tuple[str, str]] | None = None,
    ) -> list[Execution]:
        """Active executions whose time to be looked at has come; `hold` grows with each claim.

        Claimed rows are hidden from other claimants until their new time. The highest priority
        comes first, then the longest due. Nothing that is paused is claimed.

        Args:
            limit: How many at most.
            hold: For how long they are hidden at first.
            known: (saga, version) of those that the caller can run; None for all.
        """
        ...

    def claim_waiting(
        self,
        limit: int,
        hold: timedelta,
        *,
        known: Collection[tuple[str, str]] | None = None,
    ) -> list[Execution]:
        """Waiting executions that are runnable (see `acquire`), or that have places to fill.

        Args:
            limit: How many at most.
            hold: For how long they are hidden at first.
            known: (saga, version) of those that the caller can run; None for all. Places are
                filled without knowing the parent.
        """
        ...

    def overdue(self, limit: int) -> list[Execution]:
        """Executions on their way forward whose deadline has passed. Claims nothing."""
        ...

    def defer(self, execution_id: UUID, epoch: int, due_in: timedelta) -> None:
        """Look at this execution again after `due_in`, if its epoch is still this one."""
        ...


class EffectStore(Protocol):
    """What is known of effects. Every write but `resolve` is fenced like a checkpoint."""

    def intend(self, intent: EffectIntent) -> tuple[EffectRecord, bool]:
        """Record an intent and announce its call, or find what is recorded.

        A key for which nothing has landed (refused, or found not to have landed) is taken again,
        whoever had it.

        Returns:
            The record, and whether it is this call's to make: new, or taken again.

        Raises:
            EffectKeyConflictError: The key was used with another effect or request.
            ExecutionLeaseLostError: Fenced.
        """
        ...

    def announce(self, token: FenceToken, sink: str, key: str) -> EffectRecord:
        """Record that an effect whose outcome is unknown is about to be called again.

        Raises:
            ExecutionLeaseLostError: Fenced.
        """
        ...

    def conclude(
        self,
        token: FenceToken,
        sink: str,
        key: str,
        status: EffectStatus,
        *,
        result: Any = None,
        error: Any = None,
    ) -> EffectRecord:
        """Record what came of an effect; one that is confirmed stays as it is.

        Raises:
            ExecutionLeaseLostError: Fenced.
        """
        ...

    def reopen(self, token: FenceToken, sink: str, key: str, error: Any) -> EffectRecord:
        """Put an effect back in doubt whose resolution by a person can't be used.

        Raises:
            ExecutionLeaseLostError: Fenced.
        """
        ...

    def in_session(
        self, session: Any, intent: EffectIntent
    ) -> AbstractContextManager[EffectRecord | None]:
        """Take a transactional effect's key, inside the step's own transaction.

        Gives None where the key is now ours, for `confirm_in_session`, or else what is recorded.
        Waits for a transaction that has taken the key and hasn't ended. What was done inside is
        undone where it raises.
        """
        ...

    def confirm_in_session(self, session: Any, intent: EffectIntent, result: Any) -> None:
        """Record the result of a transactional effect whose key was taken."""
        ...

    def find(self, sink: str, key: str) -> EffectRecord | None:
        """What is recorded under a key, by whichever execution."""
        ...

    def of_execution(self, execution_id: UUID) -> list[EffectRecord]:
        """All effects of an execution, oldest first."""
        ...

    def in_doubt(self, limit: int) -> list[EffectRecord]:
        """Effects whose outcome is unknown, of executions that are parked; oldest first."""
        ...

    def resolve(
        self, sink: str, key: str, *, landed: bool, result: Any, by: str, why: str
    ) -> EffectRecord:
        """A person's decision about an effect in doubt; it is audited.

        Raises:
            EffectNotFoundError: There is no such effect.
            ExecutionStateError: Its outcome is known or was decided already, or its execution
                isn't parked.
        """
        ...


class LimitStore(Protocol):
    """Who may begin a step whose number or rate is limited across the fleet.

    A permit belongs to an execution at a step and not to a worker: it survives a takeover. It is
    given up by whatever ends the attempt (a checkpoint, a failed attempt, parking, turning back),
    because it counts only while the execution's row is as it was when it was asked for.
    """

    def take(
        self, execution_id: UUID, resource: str, limit: Limit, *, head: UUID, attempt: int
    ) -> timedelta | None:
        """Ask for a permit, or find the one that was given.

        Args:
            execution_id: Who asks.
            resource: What is limited: the limit's name, with its key if it has one.
            limit: How many at once, and how often.
            head: The execution's head, as its owner knows it.
            attempt: Failed attempts of the step in hand, as stored.

        Returns:
            How long to wait before asking again (zero: begin now), or None where its turn hasn't
            come. It keeps its place in the line, but has to ask again within `limits.PRESENT`
            for others not to be let past. None too for who isn't at that head and attempt.
        """
        ...

    def serve(self, resource: str, limit: Limit) -> list[Execution]:
        """Give free permits to those who wait longest; returns them, to be dispatched.

        All of them are due when they may begin; those that may not yet aren't returned.
        """
        ...

    def usage(self) -> list[Usage]:
        """What each resource is used by that anybody uses or waits for, by name."""
        ...


class Transport(Protocol):
    """Carries hints to workers. Any of them may be lost, doubled, late or out of order."""

    def dispatch(self, execution: Execution) -> None:
        """Ask some worker to run the execution."""
        ...

    def fan_out(self, children: Sequence[Execution]) -> None:
        """Publish the children of one fan-out as a Celery chord whose body wakes their parent."""
        ...
