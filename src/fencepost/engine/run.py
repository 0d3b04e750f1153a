"""One ownership of one execution: decide, do, commit, until it ends, waits or is lost."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from fencepost import faults, serde
from fencepost.commands import Definition
from fencepost.context import StepContext, TransactionalContext
from fencepost.effects import EffectRecord, EffectStatus
from fencepost.effects.declaration import EFFECT_RETRIES
from fencepost.effects.model import UNKNOWN_OUTCOME
from fencepost.engine import fences, turns
from fencepost.engine.bodies import BodyFailedError
from fencepost.engine.effects import InDoubt, Performer, Standing, Unrecorded
from fencepost.engine.heartbeat import Heartbeat
from fencepost.engine.ownership import Ownership
from fencepost.errors import (
    CheckpointForkError,
    EffectInDoubtError,
    EffectLandedError,
    ExecutionLeaseLostError,
    FenceUnavailableError,
    LeaseDeadlineError,
    ReplayMismatchError,
    ServiceUnavailableError,
    StaleLeaseFenceError,
    StepDeadlineError,
    Suspended,
)
from fencepost.failure import error_info
from fencepost.fence import FenceToken
from fencepost.limits import Limit
from fencepost.ports import Transaction
from fencepost.progress import Progress
from fencepost.records import (
    Acquired,
    CheckpointKind,
    Event,
    EventName,
    Phase,
    Status,
)
from fencepost.saga import Step

if TYPE_CHECKING:
    from fencepost.engine.core import Engine, Outcome

logger = logging.getLogger(__name__)

MAX_REFUSALS = 10
"""Refusals by a sink's fence, though the checkpoint store calls us the owner, until we park."""

REFUSED_RETRY = timedelta(seconds=1)

ANYWHERE = "*"
"""The queue of a run that may do whatever comes next."""

LOOK_FOR_PAUSE = 1.0
"""Seconds between two looks of an owner at whether its execution is paused."""

MAY_HAVE_LANDED = UNKNOWN_OUTCOME | {EffectStatus.CONFIRMED}


class Run(ABC):
    """Carries an owned execution forward; what its commands are is for the subclass.

    Args:
        engine: The ports and options.
        saga: The execution's definition.
        acquired: The row and chain as they were when it became ours.
        owner: Our name in leases, checkpoints and events.
        heart: Keeps the lease.
        queue: Where we are; what belongs elsewhere is handed on.

    Attributes:
        permit: What is limited for the step in hand, and its limit.
    """

    def __init__(
        self,
        engine: Engine,
        saga: Definition,
        acquired: Acquired,
        owner: str,
        heart: Heartbeat,
        *,
        queue: str | None,
    ) -> None:
        self.engine = engine
        self.store = engine.executions
        self.saga = saga
        self.heart = heart
        self.own = Ownership(engine, saga, acquired, owner, heart)
        self._queue = queue
        self._looked_at = engine.options.clock()
        self.permit: tuple[str, Limit] | None = None

    def to_the_end(self) -> Outcome:
        """Run until the execution has ended.

        Raises:
            Suspended: It waits, was handed on, or belongs to another.
        """
        try:
            self._park_if_poisonous()
            if self.own.epoch > 1 and self.saga.fenced:
                self._raise_fences()
            while self.own.status is Status.ACTIVE:
                self.hand_on_if_leaving()
                self.do_next()
        except LeaseDeadlineError as lost:
            self.give_up_politely(str(lost))
        except ExecutionLeaseLostError as lost:
            logger.warning("%s: %s", lost.code, lost)
            self.let_go()
            raise Suspended(str(lost)) from None
        except ServiceUnavailableError as problem:
            # The lease is left to expire: whoever takes over finds the truth in SQL.
            logger.warning("execution %s: %s", self.own.execution.execution_id, problem)
            raise Suspended(str(problem)) from None
        return self._end()

    @abstractmethod
    def do_next(self) -> None:
        """Decide what is next, do it, and commit it."""

    # -- bodies ----------------------------------------------------------------------------

    def perform_body(
        self,
        step: Step[Any, Any],
        name: str,
        visit: int,
        stored: Any,
        kind: CheckpointKind,
        *,
        record: Callable[[Any], Any] = lambda result: result,
        phase: Phase | None = None,
    ) -> None:
        """Run a body and commit its result; a body's error comes out as `BodyFailedError`.

        Args:
            step: What to run.
            name: Under which name.
            visit: Of it.
            stored: Its input.
            kind: Of the checkpoint.
            record: From the result to what the checkpoint keeps.
            phase: The direction from then on, if it changes.
        """
        token = self.own.token(name, visit)
        turns.wait(self, step, name, stored)
        self.heart.limit(self._time_for(step, name, visit, kind))
        faults.reach("step.before", step=name, kind=kind)
        if self.heart.lost():
            # Where we stood may have been a freeze: don't start what another may be doing.
            self.give_up_politely("the lease can't be trusted any more")
        try:
            with self._transaction(step, token) as transaction:
                value = serde.load(stored, step.input_type, what=f"input of step {name!r}")
                performer = self._performer(step, token, kind, transaction)
                context = self._context(token, name, visit, transaction, performer)
                result = step.invoke(context, value)
                data = serde.dump(result, step.output_type, what=f"result of step {name!r}")
                self._park_if_undecided(step, name, visit, performer)
                faults.reach("step.after", step=name, kind=kind)
                self.own.commit(
                    kind, name, visit, record(data), transaction=transaction, phase=phase
                )
        except Unrecorded as unrecorded:
            raise unrecorded.error from None
        except (ServiceUnavailableError, CheckpointForkError):
            raise
        except StaleLeaseFenceError as refused:
            # A sink has refused the write. Whether we are lost is for the checkpoint store to say.
            logger.warning("%s: %s", refused.code, refused)
            self._record_refusal(token, refused)
            if self.own.attempt >= MAX_REFUSALS:
                self.park(name, visit, f"refused {self.own.attempt} times: {refused}", refused)
            self.retry(name, visit, refused, REFUSED_RETRY)
        except ExecutionLeaseLostError:
            raise
        except InDoubt as doubt:
            self._in_doubt(name, visit, doubt)
        except Exception as error:
            raise BodyFailedError(error) from error
        finally:
            self.heart.limit(None)

    def _time_for(
        self, step: Step[Any, Any], name: str, visit: int, kind: CheckpointKind
    ) -> timedelta | None:
        """How long this attempt may run.

        Raises:
            BodyFailedError: The step's deadline has passed.
        """
        if step.deadline is None or kind is CheckpointKind.UNDO:
            return step.timeout
        left = self._deadline_of(step) - self.own.now()
        if left <= timedelta(0):
            raise BodyFailedError(
                StepDeadlineError(
                    f"step {name!r} was not completed within {step.deadline}",
                    step=name,
                    visit=visit,
                )
            )
        return left if step.timeout is None else min(left, step.timeout)

    def _deadline_of(self, step: Step[Any, Any]) -> datetime:
        # The step has been the next one since the checkpoint before it.
        return self.own.chain[-1].created_at + (step.deadline or timedelta.max)

    def _record_refusal(self, token: FenceToken, refused: StaleLeaseFenceError) -> None:
        """A zombie's write that a sink has refused; the ledger records its own refusals."""
        if "effect" not in refused.fields:
            return
        current = self.store.get(token.execution_id)
        if current is None or (current.epoch, current.owner) == (token.epoch, token.owner):
            return
        self.store.record(
            Event(
                execution_id=token.execution_id,
                name=EventName.ZOMBIE_WRITE_REJECTED,
                epoch=token.epoch,
                current_epoch=current.epoch,
                owner=token.owner,
                current_owner=current.owner,
                step_key=token.step_key,
                sink=refused.fields["sink"],
                payload_digest=refused.fields["request_digest"],
                details={"key": refused.fields["key"], "effect": refused.fields["effect"]},
            )
        )

    def _in_doubt(self, name: str, visit: int, doubt: InDoubt) -> NoReturn:
        error = EffectInDoubtError(
            doubt.reason, effect=doubt.effect.name, sink=doubt.record.sink, key=doubt.record.key
        )
        if doubt.retry_in is not None:
            self.retry(name, visit, error, doubt.retry_in)
        self.park(name, visit, doubt.reason, error)

    def _raise_fences(self) -> None:
        """Before anything else: no late call of an earlier owner may land after ours."""
        last = self.own.chain[-1]
        try:
            fences.advance(self.engine, self.own.last_token)
        except FenceUnavailableError as problem:
            delay = EFFECT_RETRIES.delay_after(self.own.attempt, problem)
            if delay is None:
                self.park(last.step, last.visit, str(problem), problem)
            self.retry(last.step, last.visit, problem, delay)
        except StaleLeaseFenceError as refused:
            # The sink knows a later owner. Whether there is one is for the checkpoint store to say.
            if self.own.attempt >= MAX_REFUSALS:
                self.park(last.step, last.visit, str(refused), refused)
            self.retry(last.step, last.visit, refused, REFUSED_RETRY)

    @contextmanager
    def _transaction(self, step: Step[Any, Any], token: FenceToken) -> Iterator[Transaction | None]:
        if not step.transactional:
            yield None
            return
        with self.store.transaction(token) as transaction:
            yield transaction

    def _performer(
        self,
        step: Step[Any, Any],
        token: FenceToken,
        kind: CheckpointKind,
        transaction: Transaction | None,
    ) -> Performer:
        return Performer(
            store=self.engine.effects,
            token=token,
            attempt=self.own.attempt,
            declared=step.effects,
            time_left=self.heart.time_left,
            session=transaction.session if transaction is not None else None,
            undoing=kind is CheckpointKind.UNDO,
            payload_limit=self.engine.options.max_effect_payload,
            standing=self._standing,
        )

    def _standing(self, record: EffectRecord) -> Standing:
        """What has become of another execution's confirmed effect."""
        other = self.store.get(record.execution_id)
        if other is None or other.phase is not Phase.COMPENSATING:
            return Standing.STANDS
        progress = Progress(self.store.chain(other.execution_id))
        entered = progress.turned_at
        if entered is not None and record.epoch > entered.epoch:
            return Standing.STANDS  # it is itself part of the undoing, which raised the epoch
        if any(
            e.kind is CheckpointKind.UNDO and e.step_key == record.step_key for e in progress.chain
        ):
            return Standing.UNDONE
        return Standing.STANDS if other.status.ended else Standing.BEING_UNDONE

    def _context(
        self,
        token: FenceToken,
        name: str,
        visit: int,
        transaction: Transaction | None,
        performer: Performer,
    ) -> StepContext:
        progress = Progress(self.own.chain)
        facts: dict[str, Any] = {
            "execution_id": self.own.execution.execution_id,
            "lineage_id": self.own.execution.lineage_id,
            "root_id": self.own.execution.root_id,
            "parent_id": self.own.execution.parent_id,
            "step": name,
            "visit": visit,
            "attempt": self.own.attempt,
            "token": token,
            "saga_input": progress.start.result,
            "results": progress.results,
            "lease_lost": self.heart.lost,
            "performer": performer.perform,
        }
        if transaction is None:
            return StepContext(**facts)
        return TransactionalContext(**facts, session=transaction.session)

    def _park_if_undecided(
        self, step: Step[Any, Any], name: str, visit: int, performer: Performer
    ) -> None:
        """A step isn't completed over an effect whose outcome nobody knows.

        The body may have swallowed that, or an earlier attempt announced, or did, what this one
        didn't come to again: its result would tell of another world.
        """
        if not step.effects or step.transactional:
            return
        if not performer.undecided and self._first_attempt(performer.token):
            return
        left = self._left_by(performer.token, MAY_HAVE_LANDED)
        # A compensation works under the step key of what it undoes, whose effects aren't its own.
        met = {r.key for r in left} if performer.undoing else performer.met
        self.park_over(left, met, name, visit, f"step {name!r} has returned")

    def park_over(
        self, left: list[EffectRecord], met: set[str], name: str, visit: int, how: str
    ) -> None:
        """Park instead of going on over effects that are in doubt, or that nobody came to again.

        Args:
            left: Effects that have landed or may have.
            met: Keys of those that the code came to.
            name: Of the step in hand.
            visit: Of it.
            how: It ended, for the reason.
        """
        unknown = [record for record in left if record.status in UNKNOWN_OUTCOME]
        if unknown:
            reason = f"{how}, and left in doubt: {_listed(unknown)}"
            first = unknown[0]
            error = EffectInDoubtError(reason, effect=first.effect, sink=first.sink, key=first.key)
            self.park(name, visit, reason, error)
        # What a person has decided is known to a person.
        not_met = [r for r in left if r.key not in met and r.resolution is None]
        if not_met:
            reason = f"{how} without coming to what an earlier attempt did: {_listed(not_met)}"
            self.park(name, visit, reason, ReplayMismatchError(reason, step=name, visit=visit))

    def _first_attempt(self, token: FenceToken) -> bool:
        """Whether nobody can have begun this step before, as far as is known without asking."""
        head = self.own.chain[-1]
        came_here = (head.epoch, head.owner) == (token.epoch, token.owner)
        return self.own.attempt == 1 and (came_here or token.epoch == 1)

    def park_if_landed(self, step: Step[Any, Any], visit: int, error: Exception) -> None:
        """A step that isn't completed isn't undone: what it left in the world is for a person."""
        if not step.effects or step.transactional:
            return
        left = self._left_by(self.own.token(step.name, visit), MAY_HAVE_LANDED)
        if left:
            reason = f"step {step.name!r} failed after its effects: {_listed(left)}; the error:"
            self.park(step.name, visit, f"{reason} {error}", EffectLandedError(f"{reason} {error}"))

    def _left_by(self, token: FenceToken, statuses: frozenset[EffectStatus]) -> list[EffectRecord]:
        return [
            record
            for record in self.engine.effects.of_execution(token.execution_id)
            if record.step_key == token.step_key and record.status in statuses
        ]

    # -- leaving ---------------------------------------------------------------------------

    def let_go(self, *, ended: bool = False) -> None:
        """Release the lease; failing that, it expires."""
        # The heartbeat first: it would put a lease that has vanished back.
        self.heart.stop()
        self.engine.let_go(self.heart.lease, ended=ended)
        turns.pass_on(self)

    def _end(self) -> Outcome:
        from fencepost.engine.core import outcome_of

        self.let_go(ended=True)
        self.engine.ended(self.own.execution)
        return outcome_of(self.own.execution)

    def retry(self, step: str, visit: int, error: Exception, delay: timedelta) -> NoReturn:
        """Hand the execution back, to be dispatched again after a delay.

        Args:
            step: The step that failed.
            visit: Of it.
            error: What it raised.
            delay: Until the next attempt.
        """
        info = error_info(error).model_dump(mode="json")
        self.store.record_attempt(self.own.token(step, visit), self.own.attempt, info, delay)
        self.let_go()
        raise Suspended(f"step {step!r} is tried again in {delay.total_seconds():.1f} s: {error}")

    def park(self, step: str, visit: int, reason: str, error: Exception | None) -> NoReturn:
        """Stop the execution for a person."""
        info = error_info(error).model_dump(mode="json") if error is not None else None
        self.store.park(self.own.token(step, visit), reason, info)
        self.let_go()
        logger.error("execution %s is parked: %s", self.own.execution.execution_id, reason)
        raise Suspended(f"parked: {reason}")

    def _park_if_poisonous(self) -> None:
        recoveries, limit = self.own.execution.recoveries, self.engine.options.max_recoveries
        if recoveries > limit:
            reason = f"taken over {recoveries} times without a new checkpoint (limit {limit})"
            self.park(self.own.chain[-1].step, self.own.chain[-1].visit, reason, None)

    def hand_on_if_leaving(self) -> None:
        """Between two steps: stop here if it isn't ours to go on, or not now."""
        turns.pass_on(self)
        if self.heart.lost():
            self.give_up_politely("the lease can't be trusted any more")
        if self.engine.options.draining():
            self.give_up_politely("this worker is shutting down")
        if self._queue not in (ANYWHERE, self.own.queue):
            self.give_up_politely(f"it goes on on queue {self.own.queue}")
        if self.engine.options.clock() - self._looked_at >= LOOK_FOR_PAUSE:
            self._look_for_pause()

    def _look_for_pause(self) -> None:
        row = self.store.get(self.own.execution.execution_id)
        self._looked_at = self.engine.options.clock()
        if row is not None and row.paused_at is not None:
            self.look_again(self.engine.unattended, "it is paused")

    def give_up_politely(self, why: str) -> NoReturn:
        """Hand the execution on at once; fenced like every write, so a zombie learns its state."""
        self.hand_back(self.engine.unattended)
        self.engine.dispatch(replace(self.own.execution, queue=self.own.queue))
        raise Suspended(f"handed on: {why}")

    def wait_on(self, why: str) -> NoReturn:
        """Go back to waiting: it was woken for nothing."""
        try:
            self.store.wait_on(self.own.last_token)
        except ExecutionLeaseLostError as lost:
            logger.warning("%s: %s", lost.code, lost)
            raise Suspended(str(lost)) from None
        self.let_go()
        raise Suspended(f"woken for nothing: {why}")

    def look_again(self, due_in: timedelta, why: str) -> NoReturn:
        """Give the execution up, to be dispatched again after a while."""
        self.hand_back(due_in)
        raise Suspended(f"not now: {why}")

    def hand_back(self, due_in: timedelta) -> None:
        """Give the execution up without a checkpoint, and the lease; fenced like every write."""
        try:
            self.store.hand_back(self.own.last_token, due_in)
        except ExecutionLeaseLostError as lost:
            logger.warning("%s: %s", lost.code, lost)
            raise Suspended(str(lost)) from None
        self.let_go()


def _listed(effects: list[EffectRecord]) -> str:
    return ", ".join(f"{e.effect} ({e.key} at {e.sink} is {e.status})" for e in effects)
