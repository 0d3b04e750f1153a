"""An owned execution: where it stands, and the one way in which its chain grows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from fencepost import identity, serde
from fencepost.commands import Definition, Finish, first_queue, queue_of
from fencepost.decide import decide
from fencepost.engine.heartbeat import Heartbeat
from fencepost.fence import FenceToken
from fencepost.ports import Transaction
from fencepost.records import (
    Acquired,
    CheckpointKind,
    Commit,
    NewExecution,
    Phase,
    Status,
)

if TYPE_CHECKING:
    from fencepost.engine.core import Engine

TELLS_WHY = frozenset({CheckpointKind.COMPENSATING, CheckpointKind.TASK_FAILED})
"""After these the chain itself tells why the execution was turned back."""


class Ownership:
    """What the owner knows of its execution, kept in step with what it commits.

    Args:
        engine: The ports and options.
        saga: The execution's definition.
        acquired: The row and chain as they were when it became ours.
        owner: Our name in leases, checkpoints and events.
        heart: Keeps the lease.
    """

    def __init__(
        self, engine: Engine, saga: Definition, acquired: Acquired, owner: str, heart: Heartbeat
    ) -> None:
        self._engine = engine
        self._saga = saga
        self._owner = owner
        self._heart = heart
        self._acquired_at = acquired.at
        self._since = engine.options.clock()
        self.execution = acquired.execution
        self.chain = list(acquired.chain)
        self.phase = acquired.execution.phase
        self.epoch = acquired.execution.epoch
        self.attempt = acquired.execution.attempt + 1
        self.status = Status.ACTIVE
        self.turned_back = acquired.execution.turned_back
        self.directive = acquired.execution.directive
        self.queue = acquired.execution.queue

    def now(self) -> datetime:
        """The store's time: what it was at the acquisition, and the time that we held it since."""
        held = self._engine.options.clock() - self._since
        return self._acquired_at + timedelta(seconds=held)

    def directed(self, step: str, visit: int) -> Any:
        """What a person has decided about a visit to a step, if anything; a dictionary."""
        told = self.directive or {}
        return told if (told.get("step"), told.get("visit")) == (step, visit) else None

    def token(self, step: str, visit: int, times: int = 1) -> FenceToken:
        """The fence token for what is written about a visit to a step, for the n-th time."""
        execution_id = self.execution.execution_id
        key = identity.step_key(execution_id, step, visit)
        if times > 1:
            key = identity.again(key, times)
        return FenceToken(execution_id, self.epoch, self._owner, key)

    @property
    def last_token(self) -> FenceToken:
        """The fence token for what is written about the execution as it stands."""
        last = self.chain[-1]
        return self.token(last.step, last.visit)

    def commit(
        self,
        kind: CheckpointKind,
        step: str,
        visit: int,
        result: Any,
        *,
        times: int = 1,
        transaction: Transaction | None = None,
        waits: bool = False,
        phase: Phase | None = None,
        **also: Any,
    ) -> None:
        """Extend the chain.

        Args:
            kind: What the checkpoint records.
            step: The step it is about.
            visit: Which visit of it.
            result: JSON-compatible.
            times: Which time this is recorded of the visit, where that may be more than once.
            transaction: The step's own transaction, which this commits.
            waits: The execution then waits for its children, a time or a signal.
            phase: The direction from here on, if it changes.
            **also: Further fields of `Commit`.

        Raises:
            ExecutionLeaseLostError, StaleLeaseFenceError: Fenced.
        """
        head = self.chain[-1]
        phase = phase or self.phase
        commit = Commit(
            checkpoint_id=uuid4(),
            token=self.token(step, visit, times),
            parent=head.checkpoint_id,
            seq=head.seq + 1,
            kind=kind,
            step=step,
            visit=visit,
            attempt=self.attempt,
            result=result,
            due_in=timedelta(0) if waits else self._engine.unattended,
            status=Status.WAITING if waits else Status.ACTIVE,
            phase=phase,
            **also,
        )
        left = None if kind in TELLS_WHY else self.turned_back
        commit = self._with_what_follows(commit, left)
        write = self._engine.executions.commit if transaction is None else transaction.commit
        with self._heart.bounded():
            self.chain.append(write(commit))
        self.status, self.phase, self.attempt = commit.status, phase, 1
        self.turned_back, self.directive, self.queue = left, None, commit.queue
        self.execution = replace(
            self.execution, status=commit.status, result=commit.outcome, error=commit.error
        )
        if commit.raise_epochs:
            self.epoch += 1
            if not commit.status.ended:
                self._heart.raise_epoch(self.epoch)

    def _with_what_follows(self, commit: Commit, turned_back: Any) -> Commit:
        """Let the end ride on the last commit, so that nothing can come between the two."""
        drafted = [*self.chain, commit.checkpoint(datetime.now(UTC))]
        following_command = decide(self._saga, commit.phase, drafted, turned_back)
        match following_command:
            case Finish(Status.CONTINUED, outcome, error):
                following = self._continuation(outcome)
                return replace(
                    commit,
                    status=Status.CONTINUED,
                    outcome={"continued_as": str(following.execution_id)},
                    error=error,
                    children=(following,),
                )
            case Finish(status, outcome, error):
                return replace(commit, status=status, outcome=outcome, error=error)
            case _:
                return replace(commit, queue=queue_of(following_command, self._saga))

    def _continuation(self, value: Any) -> NewExecution:
        mine = self.execution
        return NewExecution(
            execution_id=identity.continuation_id(mine.execution_id),
            saga=mine.saga,
            version=self._saga.version,
            input=value,
            input_digest=serde.digest(value),
            lineage_id=mine.lineage_id,
            root_id=mine.root_id,
            parent_id=mine.parent_id,
            parent_step=mine.parent_step,
            parent_visit=mine.parent_visit,
            child_index=mine.child_index,
            queue=first_queue(self._saga),
            priority=mine.priority,
            deadline_at=mine.deadline_at,
        )
