"""What people do with executions. Each is audited: who, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from fencepost import serde
from fencepost.commands import Definition
from fencepost.decide import CANCELLED, told
from fencepost.engine import forking, parked
from fencepost.engine.refusals import found, said, wrong_state
from fencepost.errors import FencepostError, PayloadError
from fencepost.identity import check_name
from fencepost.ports import EffectStore, ExecutionStore
from fencepost.records import (
    CheckpointKind,
    Event,
    EventName,
    Execution,
    NewSignal,
    SentSignal,
    Status,
)
from fencepost.saga import Approval, Saga, Signal, WaitNode
from fencepost.saga.signals import APPROVAL, approval_signal

KEY_LIMIT = 255
"""Characters of a signal's key."""

DOUBTS = 1_000
"""Effects in doubt, of all executions, that are looked at before one is cancelled."""

Find = Callable[[str, str], Definition | None]
"""Gives the definition of a saga's name and version, where it is known."""


def nothing_known(_saga: str, _version: str) -> Definition | None:
    """What a process knows that has no app."""
    return None


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of sending a signal.

    Attributes:
        signal: As it is stored.
        created: Whether this call stored it; its key may have been used before.
        execution: Whom it went to: of one that was continued as new, what continues it.
    """

    signal: SentSignal
    created: bool
    execution: Execution

    @property
    def wanted_now(self) -> bool:
        """Whether somebody waits for it now."""
        waiting = self.execution.status is Status.WAITING
        return waiting and self.execution.waits_for == self.signal.name


class Operations:
    """The operations on single executions, over the ports.

    Nothing is dispatched here: what these return is for the caller to dispatch, or for the
    reapers to find.

    Args:
        executions: The truth.
        effects: What is known of effects.
        find: Gives definitions; what it doesn't know is done without being held to its types.
    """

    def __init__(
        self, executions: ExecutionStore, effects: EffectStore, find: Find = nothing_known
    ) -> None:
        self._executions = executions
        self._effects = effects
        self._find = find

    def cancel(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """Have an execution, or what continues it, undo its work and end.

        Raises:
            ExecutionNotFoundError: There is no such execution.
            ExecutionStateError: It has ended or passed its pivot; or the outcome of an effect is
                not known, of it or of a child, that is parked over it.
        """
        said(by, why)
        self._refuse_in_doubt(self._latest(execution_id))
        return self._executions.turn_back(
            execution_id,
            told(CANCELLED, f"cancelled by {by}: {why}"),
            EventName.CANCELLED,
            {"by": by, "why": why},
        )

    def _latest(self, execution_id: UUID) -> Execution:
        """The execution, or what continues it."""
        execution = found(self._executions, execution_id)
        while execution.status is Status.CONTINUED:
            execution = found(self._executions, UUID(execution.result["continued_as"]))
        return execution

    def _refuse_in_doubt(self, execution: Execution) -> None:
        # Undoing leaves alone what isn't known to have been done, and nobody would ask again.
        for effect in self._effects.in_doubt(DOUBTS):
            owner = found(self._executions, effect.execution_id)
            if self._is_below(owner, execution):
                whose = "" if owner == execution else f" of its child {owner.execution_id}"
                raise wrong_state(
                    execution,
                    f"the outcome of {effect.effect!r}{whose} ({effect.key} at {effect.sink}) is"
                    " not known: decide about that first",
                    following=f"fencepost effects {owner.execution_id} --in-doubt",
                )

    def _is_below(self, member: Execution, execution: Execution) -> bool:
        if member.root_id != execution.root_id:
            return False
        while member.lineage_id != execution.lineage_id:
            if member.parent_id is None:
                return False
            member = found(self._executions, member.parent_id)
        return True

    def pause(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """Have nothing more of an execution and its descendants begun.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None, or it has ended.
        """
        said(by, why)
        return self._executions.pause(execution_id, by=by, why=why)

    def resume(self, execution_id: UUID, *, by: str, why: str) -> list[Execution]:
        """Lift a pause; returns what is now due.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None, or it isn't paused.
        """
        said(by, why)
        return self._executions.resume(execution_id, by=by, why=why)

    def retry(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """Let a parked execution go on; or one that has failed with nothing to undo.

        Raises:
            ExecutionNotFoundError: There is no such execution.
            ExecutionStateError: It is in another state; says what can be done instead.
        """
        said(by, why)
        execution = found(self._executions, execution_id)
        if execution.status is Status.PARKED:
            return self._executions.unpark(execution_id, why, by=by)
        if execution.status is not Status.FAILED:
            raise _not_to_be_retried(execution)
        last = self._executions.chain(execution_id)[-1]
        if last.kind is CheckpointKind.TASK_FAILED:
            raise wrong_state(
                execution,
                "a durable task that has failed can't be reopened; a fork of it begins with what"
                " its steps have on record",
                following=f"fencepost fork {execution_id} --why '...'",
            )
        if execution.parent_id is not None:
            raise wrong_state(
                execution,
                "it can't be reopened, because its parent has gone on",
                following=f"fencepost status {execution.parent_id}",
            )
        return self._executions.reopen(execution_id, by=by, why=why)

    def skip(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """Leave the step at which an execution is parked as it is.

        On the way forward the step counts as failed, and what came before it is undone; in
        compensation it counts as undone, though it isn't.

        Raises:
            ExecutionNotFoundError: There is no such execution.
            ExecutionStateError: It isn't parked, has passed its pivot, its effects are in doubt,
                or what it is parked at can't be skipped.
        """
        said(by, why)
        return self._decide(parked.skipping, execution_id, by, why)

    def resolve_step(self, execution_id: UUID, result: Any, *, by: str, why: str) -> Execution:
        """Give the result of the step at which an execution is parked, instead of running it.

        Args:
            execution_id: Whose.
            result: JSON-compatible; held to the step's type where its definition is known. For a
                compensation (it was done by hand) it means nothing.
            by: Who decides.
            why: Kept in the audit trail.

        Raises:
            ExecutionNotFoundError: There is no such execution.
            ExecutionStateError: It isn't parked, its effects are in doubt, or what it is parked
                at has no result.
            PayloadError: The result isn't of the step's type.
        """
        said(by, why)
        result = serde.dump(result, object, what="result")

        def resolving(*known: Any) -> Any:
            return parked.resolving(*known, result=result)

        return self._decide(resolving, execution_id, by, why)

    def _decide(
        self, directive_for: Callable[..., Any], execution_id: UUID, by: str, why: str
    ) -> Execution:
        execution = found(self._executions, execution_id)
        definition = self._find(execution.saga, execution.version)
        hand = parked.step_in_hand(self._executions, execution, definition)
        parked.refuse_in_doubt(self._effects, execution, hand)
        directive = directive_for(self._executions, execution, definition, hand)
        directive |= {"by": by, "why": why}
        return self._executions.unpark(execution_id, why, by=by, directive=directive)

    def signal(
        self,
        execution_id: UUID,
        signal: Signal[Any] | str,
        payload: Any,
        *,
        key: str | None = None,
        by: str = "",
    ) -> Sent:
        """Send a signal to an execution, or to what continues it.

        Args:
            execution_id: Whose.
            signal: Declared, or its name.
            payload: Held to the declared type: the signal's, or that of the wait in the saga
                where its definition is known.
            key: A second signal of that name with the same key is not stored.
            by: Who sends it.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None, or it has ended.
            PayloadError: The payload isn't of the type, or a name or key can't be used.
        """
        name = signal if isinstance(signal, str) else signal.name
        check_lengths(name, key, by)
        declared = signal.payload if isinstance(signal, Signal) else self._type(execution_id, name)
        stored, created = self._executions.send_signal(
            NewSignal(
                signal_id=uuid4(),
                execution_id=execution_id,
                name=name,
                payload=serde.dump(payload, declared, what=f"payload of signal {name!r}"),
                key=key,
                by=by,
            )
        )
        return Sent(stored, created, found(self._executions, stored.execution_id))

    def _type(self, execution_id: UUID, name: str) -> Any:
        """What the payload of a signal of that name has to be, as far as is known."""
        if name.startswith(APPROVAL):
            return Approval
        execution = found(self._executions, execution_id)
        saga = self._find(execution.saga, execution.version)
        nodes = saga.all_nodes() if isinstance(saga, Saga) else ()
        for node in nodes:
            if isinstance(node, WaitNode) and node.signal is not None and node.signal.name == name:
                return node.signal.payload
        return object

    def approve(self, execution_id: UUID, name: str, *, by: str, why: str) -> Sent:
        """Say yes to what an execution waits for, or will.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None; it has ended; or somebody has said
                no.
            PayloadError: The name can't be an approval's.
        """
        return self._answer(execution_id, name, approved=True, by=by, why=why)

    def reject(self, execution_id: UUID, name: str, *, by: str, why: str) -> Sent:
        """Say no to what an execution waits for, or will.

        Raises:
            ExecutionNotFoundError, ExecutionStateError: None; it has ended; or somebody has said
                yes.
            PayloadError: The name can't be an approval's.
        """
        return self._answer(execution_id, name, approved=False, by=by, why=why)

    def _answer(self, execution_id: UUID, name: str, *, approved: bool, by: str, why: str) -> Sent:
        said(by, why)
        check_lengths(f"{APPROVAL}{name}", None, by)
        signal = approval_signal(name)
        execution = self._latest(execution_id)
        asked = execution.status is Status.WAITING and execution.waits_for == signal.name
        answer = Approval(approved=approved, by=by, why=why, at=datetime.now(UTC))
        # One answer to one question: a second one must not be taken by a later visit.
        key = f"answer:{execution.head}" if asked else None
        sent = self.signal(execution_id, signal, answer, key=key, by=by)
        first = sent.signal.payload
        if not sent.created and first["approved"] is not approved:
            said_before = "approved" if first["approved"] else "rejected"
            raise wrong_state(
                execution, f"{first['by']} has {said_before} {name!r} already: {first['why']}"
            )
        return sent

    def fork(
        self,
        execution_id: UUID,
        *,
        at: int | None = None,
        input: Any = forking.THE_SAME,  # noqa: A002 - shadows a builtin: it is what it is
        by: str,
        why: str,
    ) -> Execution:
        """Start an execution whose chain begins with a part of another's.

        Args:
            execution_id: Whose.
            at: The last entry of its chain that comes along; 0 for none. By default everything
                that it had done when it failed.
            input: Instead of its input.
            by: Who decides.
            why: Kept in the audit trail.

        Raises:
            ExecutionNotFoundError: There is no such execution.
            ExecutionStateError: What would come along was undone, may yet be, or can't be the
                beginning of a chain.
            PayloadError: The input isn't of the saga's input type.
        """
        said(by, why)
        original = found(self._executions, execution_id)
        chain = self._executions.chain(execution_id)
        definition = self._find(original.saga, original.version)
        new = forking.planned(original, chain, definition, at=at, value=input)
        # First who and why: were this process lost in between, nothing would be unaccounted for.
        self._executions.record(
            Event(
                execution_id=execution_id,
                name=EventName.FORKED,
                epoch=original.epoch,
                details={
                    "as": str(new.execution_id),
                    "seq": len(new.prefix),
                    "by": by,
                    "why": why,
                },
            )
        )
        fork, _ = self._executions.create(new)
        return fork


def _not_to_be_retried(execution: Execution) -> FencepostError:
    mine = execution.execution_id
    match execution.status:
        case Status.COMPENSATED:
            return wrong_state(
                execution,
                f"its work is undone: start anew, or `fencepost fork {mine} --at 0`",
                following=f"fencepost fork {mine} --at 0 --why '...'",
            )
        case Status.CONTINUED:
            following = execution.result["continued_as"]
            return wrong_state(
                execution,
                f"it goes on as {following}",
                following=f"fencepost status {following}",
            )
        case Status.SUCCEEDED:
            return wrong_state(execution, "there is nothing to be tried again")
        case _:
            return wrong_state(execution, "it is under way, and needs nobody to have it go on")


def check_lengths(name: str, key: str | None, by: str) -> None:
    """Whether a signal can be stored.

    Raises:
        PayloadError: Its name, key or sender can't be.
    """
    try:
        check_name(name, "signal")
    except FencepostError as problem:
        raise PayloadError(problem.message) from None
    for what, text in (("key", key), ("sender", by)):
        if text is not None and len(text) > KEY_LIMIT:
            raise PayloadError(f"a signal's {what} has at most {KEY_LIMIT} characters")
    if key == "":
        raise PayloadError("a signal's key can't be empty")
