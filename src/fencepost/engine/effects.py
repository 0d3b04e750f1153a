"""Performing effects: intent, call, confirmation, and what to do when one of them is missing.

Every path ends in one of three ways: a recorded result, an error that says nothing has landed,
or `InDoubt`. Nothing here guesses.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, assert_never

from fencepost import faults, serde
from fencepost.effects import (
    Effect,
    EffectCall,
    EffectKind,
    EffectRecord,
    EffectStatus,
    Landed,
    NotLanded,
    Unknown,
)
from fencepost.effects.declaration import EFFECT_RETRIES
from fencepost.effects.model import EffectIntent, check_same_request
from fencepost.errors import (
    EffectError,
    EffectKeyConflictError,
    EffectOutsideStepError,
    EffectRefusedError,
    FenceError,
    LeaseDeadlineError,
    PayloadError,
    ServiceUnavailableError,
)
from fencepost.failure import error_info
from fencepost.fence import FenceToken
from fencepost.ports import EffectStore
from fencepost.saga.steps import run_to_its_end

logger = logging.getLogger(__name__)

KEY_LIMIT = 255
"""Characters of a key, and of a resource's name."""

PAYLOAD_LIMIT = 256 * 1024
"""Bytes of JSON of one request or result, unless the fleet's settings say otherwise."""

IN_UNDO = "undo:"
"""In the default keys of what a compensation performs: it works under its step's step key."""


class Standing(StrEnum):
    """What has become of an effect that is confirmed."""

    STANDS = "stands"
    BEING_UNDONE = "being-undone"
    """Its execution compensates, and may come to it."""
    UNDONE = "undone"


class Unrecorded(BaseException):
    """The ledger doesn't answer, perhaps after the sink has: this attempt is over.

    Derives from `BaseException` so that no step's `except Exception` goes another way, to a
    second provider for instance, beside what has landed and isn't recorded.

    Attributes:
        error: Why.
    """

    def __init__(self, error: ServiceUnavailableError) -> None:
        super().__init__(str(error))
        self.error = error


class InDoubt(BaseException):
    """The step can't go on: an effect's outcome is unknown.

    Derives from `BaseException` so that no step's `except Exception` takes it for a failure.

    Attributes:
        retry_in: When to try again; None to park.
        reason: What is unknown, for a person.
    """

    def __init__(
        self,
        effect: Effect[Any, Any],
        record: EffectRecord,
        reason: str,
        retry_in: timedelta | None,
    ) -> None:
        super().__init__(reason)
        self.effect = effect
        self.record = record
        self.reason = reason
        self.retry_in = retry_in


@dataclass
class Performer:
    """Performs the effects of one attempt at a step.

    Attributes:
        store: Where effects are recorded.
        token: Of the step in hand.
        attempt: Of the step, from 1.
        declared: The effects that the step declares.
        time_left: Until the lease can't be trusted; zero or less when it can't be.
        session: The step's session, if it is transactional.
        undoing: Whether the step is the compensation of the one that its token names.
        payload_limit: Bytes of JSON of one request or result.
        standing: What has become of another execution's confirmed effect.
        undecided: Keys that this attempt has announced, and whose outcome it hasn't recorded.
        met: Keys that this attempt has come to.
    """

    store: EffectStore
    token: FenceToken
    attempt: int
    declared: tuple[Effect[Any, Any], ...]
    time_left: Callable[[], float]
    session: Any = None
    undoing: bool = False
    payload_limit: int = PAYLOAD_LIMIT
    standing: Callable[[EffectRecord], Standing] = lambda _record: Standing.STANDS
    undecided: set[str] = field(default_factory=set)
    met: set[str] = field(default_factory=set)
    _counts: dict[str, int] = field(default_factory=dict)

    def perform(self, effect: Effect[Any, Any], request: Any, key: str | None) -> Any:
        """See `StepContext.perform`."""
        try:
            return self._perform(effect, request, key)
        except ServiceUnavailableError as problem:
            raise Unrecorded(problem) from problem

    def _perform(self, effect: Effect[Any, Any], request: Any, key: str | None) -> Any:
        self._check_place(effect)
        data = serde.dump(request, effect.request_type, what=_request_of(effect))
        check_size(data, _request_of(effect), self.payload_limit)
        # What a replay would be given, and not what happens to have the same JSON.
        request = serde.load(data, effect.request_type, what=_request_of(effect))
        intent = self._intent(effect, request, data, key)
        self.met.add(intent.key)
        facts = {"effect": effect.name, "key": intent.key}
        faults.reach("effect.before-intent", **facts)
        if effect.kind is EffectKind.TRANSACTIONAL:
            return self._in_transaction(effect, intent, request)
        record, ours_to_call = self.store.intend(intent)
        if ours_to_call:
            self.undecided.add(intent.key)
        faults.reach("effect.after-intent", **facts)
        if not ours_to_call:
            if record.status is EffectStatus.CONFIRMED:
                self._check_that_it_stands(effect, record)
                return self._recorded(effect, record)
            self._wait_for_other_execution(effect, record)
            self.undecided.add(intent.key)
            answer = self._after_unknown_outcome(effect, record, request)
            if isinstance(answer, Landed):
                return answer.result
            record = self.store.announce(self.token, effect.sink, intent.key)
        return self._call(effect, record, request)

    def _intent(
        self, effect: Effect[Any, Any], request: Any, data: Any, key: str | None
    ) -> EffectIntent:
        return EffectIntent(
            token=self.token,
            sink=effect.sink,
            key=self._key(effect, key),
            effect=effect.name,
            kind=effect.kind,
            resource=self._resource(effect, request),
            request=data,
            request_digest=serde.digest(data),
        )

    def _check_place(self, effect: Effect[Any, Any]) -> None:
        if effect not in self.declared:
            raise EffectOutsideStepError(
                f"this step doesn't declare effect {effect.name!r}: add it to @step(effects=[...])",
                effect=effect.name,
            )
        transactional = effect.kind is EffectKind.TRANSACTIONAL
        if transactional is not (self.session is not None):
            needed = "a transactional step" if transactional else "a step that isn't transactional"
            raise EffectOutsideStepError(
                f"effect {effect.name!r} is {effect.kind}: perform it in {needed}",
                effect=effect.name,
            )

    def _key(self, effect: Effect[Any, Any], key: str | None) -> str:
        if key is not None:
            return _checked(key, "an effect's key")
        number = self._counts[effect.name] = self._counts.get(effect.name, 0) + 1
        place = IN_UNDO if self.undoing else ""
        return f"{self.token.step_key}:{place}{effect.name}:{number}"

    def _resource(self, effect: Effect[Any, Any], request: Any) -> str:
        if effect.resource is None:
            return str(self.token.execution_id)
        return _checked(effect.resource(request), f"the resource of effect {effect.name!r}")

    def _recorded(self, effect: Effect[Any, Any], record: EffectRecord) -> Any:
        try:
            return serde.load(record.result, effect.result_type, what=_result_of(effect))
        except PayloadError as problem:
            if record.resolution is None:
                raise
            # A person's mistake must not be final: it can be decided again.
            info = error_info(problem).model_dump(mode="json")
            record = self.store.reopen(self.token, record.sink, record.key, info)
            by = record.resolution["by"] if record.resolution else "a person"
            reason = f"what {by} gave as {problem.message}: resolve {record.key} again"
            raise InDoubt(effect, record, reason, None) from problem

    # -- calling ---------------------------------------------------------------------------

    def _call(self, effect: Effect[Any, Any], record: EffectRecord, request: Any) -> Any:
        call = self._call_facts(record)
        # The last thing before the call, and without asking anyone: a holder whose deadline has
        # passed has perhaps been taken over, and its successor may be calling right now.
        if call.time_left <= timedelta(0):
            raise LeaseDeadlineError(
                self.token.execution_id,
                held=self.token.epoch,
                current=self.token.epoch,
                step_key=self.token.step_key,
            )
        try:
            result = run_to_its_end(effect.function(call, request))
        except FenceError as refused:
            # For the audit trail: whose write it was that the sink has refused.
            refused.fields |= {
                "effect": effect.name,
                "sink": effect.sink,
                "key": record.key,
                "request_digest": record.request_digest,
            }
            raise
        except effect.refused as problem:
            self._conclude(record, EffectStatus.REFUSED, problem)
            raise EffectRefusedError(
                f"{effect.sink} refused {effect.name!r}: {problem}",
                effect=effect.name,
                key=record.key,
                cause=error_info(problem).model_dump(mode="json"),
            ) from problem
        except Exception as problem:
            raise self._unknown(effect, record, problem) from problem
        faults.reach("effect.applied", effect=effect.name, key=record.key)
        return self._confirm(effect, record, result)

    def _call_facts(self, record: EffectRecord) -> EffectCall:
        # Before anything is asked: a freeze from here on must not move the deadline.
        now = time.monotonic()
        return EffectCall(
            _made_at=now,
            key=record.key,
            token=self.token,
            resource=record.resource,
            number=record.calls,
            time_left=timedelta(seconds=self.time_left()),
            digest=record.request_digest,
        )

    def _confirm(self, effect: Effect[Any, Any], record: EffectRecord, result: Any) -> Any:
        try:
            data, kept = self._dump_result(effect, result)
        except PayloadError as problem:
            # It has landed, but its answer can't be kept: that is for a person.
            self._conclude(record, EffectStatus.IN_DOUBT, problem)
            raise InDoubt(effect, record, f"it has landed, but {problem}", None) from problem
        self.store.conclude(
            self.token, effect.sink, record.key, EffectStatus.CONFIRMED, result=data
        )
        self.undecided.discard(record.key)
        faults.reach("effect.confirmed", effect=effect.name, key=record.key)
        return kept

    def _dump_result(self, effect: Effect[Any, Any], result: Any) -> tuple[Any, Any]:
        """What is stored of a result, and what comes back from that at a replay."""
        data = serde.dump(result, effect.result_type, what=_result_of(effect))
        check_size(data, _result_of(effect), self.payload_limit)
        return data, serde.load(data, effect.result_type, what=_result_of(effect))

    def _conclude(self, record: EffectRecord, status: EffectStatus, problem: Exception) -> None:
        info = error_info(problem).model_dump(mode="json")
        self.store.conclude(self.token, record.sink, record.key, status, error=info)
        if status is EffectStatus.REFUSED:
            self.undecided.discard(record.key)

    # -- not knowing -----------------------------------------------------------------------

    def _unknown(
        self, effect: Effect[Any, Any], record: EffectRecord, problem: Exception
    ) -> InDoubt:
        logger.warning("effect %s (%s): outcome unknown: %s", effect.name, record.key, problem)
        self._conclude(record, EffectStatus.IN_DOUBT, problem)
        reason = f"effect {effect.name!r} ({record.key}) at {effect.sink}: {problem}"
        if effect.kind is EffectKind.AT_MOST_ONCE:
            return InDoubt(effect, record, reason, None)
        return InDoubt(effect, record, reason, effect.retry.delay_after(self.attempt, problem))

    def _wait_for_other_execution(self, effect: Effect[Any, Any], record: EffectRecord) -> None:
        if record.execution_id == self.token.execution_id:
            return
        # A business key that another execution is using right now, or that waits for a person.
        reason = f"key {record.key!r} at {record.sink} is in use by execution {record.execution_id}"
        delay = EFFECT_RETRIES.delay_after(self.attempt, EffectError(reason))
        raise InDoubt(effect, record, reason, delay)

    def _check_that_it_stands(self, effect: Effect[Any, Any], record: EffectRecord) -> None:
        """Nobody may build on another execution's effect that was undone."""
        if record.execution_id == self.token.execution_id:
            return
        match self.standing(record):
            case Standing.STANDS:
                return
            case Standing.BEING_UNDONE:
                reason = f"{record.key!r} is perhaps being undone by {record.execution_id}"
                delay = EFFECT_RETRIES.delay_after(self.attempt, EffectError(reason))
                raise InDoubt(effect, record, reason, delay)
            case Standing.UNDONE:
                raise EffectKeyConflictError(
                    f"key {record.key!r} at sink {record.sink!r} stands for an effect of execution"
                    f" {record.execution_id} that was undone: another attempt needs another key",
                    sink=record.sink,
                    key=record.key,
                    execution_id=str(record.execution_id),
                    effect=record.effect,
                )

    def _after_unknown_outcome(
        self, effect: Effect[Any, Any], record: EffectRecord, request: Any
    ) -> Landed[Any] | NotLanded:
        """What an earlier call came to: it landed, or it is safe to call (again)."""
        if effect.kind is not record.kind:
            reason = f"it was called as {record.kind}, and is declared as {effect.kind} now"
            raise self._for_a_person(effect, record, reason)
        match effect.kind:
            case EffectKind.FENCED:
                return NotLanded()
            case EffectKind.IDEMPOTENT:
                return self._if_remembered(effect, record, request)
            case EffectKind.RECONCILABLE:
                return self._probe(effect, record, request)
            case EffectKind.AT_MOST_ONCE:
                raise self._for_a_person(effect, record, "it was announced, and not confirmed")
            case EffectKind.TRANSACTIONAL:
                raise EffectError("a transactional effect has no unknown outcome")
            case _:
                assert_never(effect.kind)

    def _if_remembered(
        self, effect: Effect[Any, Any], record: EffectRecord, request: Any
    ) -> Landed[Any] | NotLanded:
        """Send a key again only where it arrives while the sink still remembers it."""
        kept = effect.retention
        if kept is None or record.since_first_call + effect.in_flight < kept:
            return NotLanded()
        if effect.probe is not None:
            return self._probe(effect, record, request)
        raise self._for_a_person(effect, record, f"the sink forgets keys after {kept}")

    def _for_a_person(self, effect: Effect[Any, Any], record: EffectRecord, reason: str) -> InDoubt:
        ago = f"{record.calls} call(s), the last {record.since_last_call} ago"
        what = f"effect {effect.name!r} ({record.key}) at {effect.sink}"
        return InDoubt(effect, record, f"{what}: {reason}; {ago}", None)

    def _probe(
        self, effect: Effect[Any, Any], record: EffectRecord, request: Any
    ) -> Landed[Any] | NotLanded:
        assert effect.probe is not None  # checked at declaration, or by the caller
        faults.reach("effect.before-probe", effect=effect.name, key=record.key)
        try:
            answer = run_to_its_end(effect.probe(self._call_facts(record), request))
        except FenceError:
            raise
        except Exception as problem:
            reason = f"the probe of effect {effect.name!r} ({record.key}) failed: {problem}"
            delay = effect.retry.delay_after(self.attempt, problem)
            raise InDoubt(effect, record, reason, delay) from problem
        faults.reach("effect.after-probe", effect=effect.name, key=record.key)
        match answer:
            case Landed(result):
                return Landed(self._confirm(effect, record, result))
            case NotLanded():
                return self._believe(effect, record)
            case Unknown(why):
                raise self._for_a_person(effect, record, f"the probe can't tell: {why}")
            case _:
                told = f"the probe must answer Landed, NotLanded or Unknown, not {answer!r:.100}"
                raise self._for_a_person(effect, record, told)

    def _believe(self, effect: Effect[Any, Any], record: EffectRecord) -> NotLanded:
        still_under_way = effect.in_flight - record.since_last_call
        if still_under_way > timedelta(0):
            reason = f"a call of effect {effect.name!r} ({record.key}) may still be under way"
            raise InDoubt(effect, record, reason, still_under_way)
        return NotLanded()

    # -- transactional ---------------------------------------------------------------------

    def _in_transaction(self, effect: Effect[Any, Any], intent: EffectIntent, request: Any) -> Any:
        facts = {"effect": effect.name, "key": intent.key}
        with self.store.in_session(self.session, intent) as record:
            if record is not None:
                check_same_request(record, intent)
                if record.status is not EffectStatus.CONFIRMED:
                    reason = f"it was called as {record.kind}, and is {record.status}"
                    raise self._for_a_person(effect, record, reason)
                self._check_that_it_stands(effect, record)
                return self._recorded(effect, record)
            faults.reach("effect.after-intent", **facts)
            call = EffectCall(
                key=intent.key,
                token=self.token,
                resource=intent.resource,
                number=1,
                time_left=timedelta(seconds=self.time_left()),
                digest=intent.request_digest,
                _session=self.session,
            )
            result = run_to_its_end(effect.function(call, request))
            data, kept = self._dump_result(effect, result)
            faults.reach("effect.applied", **facts)
            self.store.confirm_in_session(self.session, intent, data)
        faults.reach("effect.confirmed", **facts)
        return kept


def _request_of(effect: Effect[Any, Any]) -> str:
    return f"request of effect {effect.name!r}"


def _result_of(effect: Effect[Any, Any]) -> str:
    return f"result of effect {effect.name!r}"


def _checked(name: Any, what: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= KEY_LIMIT or "\x00" in name:
        raise PayloadError(f"{what} is a text of 1 to {KEY_LIMIT} characters, not {name!r:.60}")
    return name


def check_size(data: Any, what: str, limit: int = PAYLOAD_LIMIT) -> None:
    """Refuse what is too large to keep in the ledger.

    Raises:
        PayloadError: Says where to put it instead.
    """
    size = len(json.dumps(data).encode())
    if size > limit:
        raise PayloadError(
            f"the {what} has {size} bytes of JSON, and the limit is {limit}: keep it in a file or"
            " an object store, and pass its address and digest",
            size=size,
            limit=limit,
        )
