"""What is recorded of effects, and what a sink can be asked."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from uuid import UUID

from fencepost.errors import EffectKeyConflictError, ExecutionStateError
from fencepost.fence import FenceToken
from fencepost.records import Event, EventName, Status

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Res = TypeVar("Res")


class EffectKind(StrEnum):
    """What a sink can do, and so which protocol an effect gets. Strongest first."""

    TRANSACTIONAL = "transactional"
    """Lives in the ledger's own database: effect and checkpoint are one transaction."""
    FENCED = "fenced"
    """The sink checks the fence token, and applies a key once."""
    IDEMPOTENT = "idempotent"
    """The sink dedupes by key, atomically."""
    RECONCILABLE = "reconcilable"
    """The sink can be asked whether a call landed."""
    AT_MOST_ONCE = "at-most-once"
    """None of these: one call, and a person decides when its outcome is unknown."""


class EffectStatus(StrEnum):
    """Where an effect is in its life."""

    INTENT = "intent"
    """Recorded, perhaps called. Until there is a confirmation, the outcome is unknown."""
    IN_DOUBT = "in-doubt"
    """Called, and the outcome is unknown."""
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    """The sink said no: nothing has landed."""
    NOT_LANDED = "not-landed"
    """A probe or a person found that nothing has landed."""


UNKNOWN_OUTCOME = frozenset({EffectStatus.INTENT, EffectStatus.IN_DOUBT})
NOTHING_LANDED = frozenset({EffectStatus.REFUSED, EffectStatus.NOT_LANDED})


@dataclass(frozen=True, slots=True)
class Landed(Generic[Res]):
    """A probe's answer: the effect is there, and this is its result."""

    result: Res


@dataclass(frozen=True, slots=True)
class NotLanded:
    """A probe's answer: the effect is not there."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A probe's answer: the sink can't tell (yet)."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectCall:
    """What an effect's function and its probe are given beside the request.

    Attributes:
        key: The idempotency key: the same for every call of this effect, whoever makes it.
        token: The fence token of the caller.
        resource: What the fence protects at the sink.
        number: Which call of this effect this is, from 1.
        time_left: From when the call was made until the caller's lease can't be trusted any more;
            a good request time-out.
        digest: Of the request, for a sink that compares requests under one key.
    """

    key: str
    token: FenceToken
    resource: str
    number: int
    time_left: timedelta
    digest: str | None = None
    _session: Session | None = None
    _made_at: float = field(default_factory=time.monotonic)

    @property
    def deadline(self) -> float:
        """When the caller's lease can't be trusted any more, by `time.monotonic()`.

        To be looked at right before sending, where work comes before that: a process that was
        frozen in between must not send.
        """
        return self._made_at + self.time_left.total_seconds()

    @property
    def session(self) -> Session:
        """The step's own session; only for transactional effects."""
        assert self._session is not None, "only a transactional effect has a session"
        return self._session


class FencedSink(Protocol):
    """A sink that keeps a high-water mark of epochs for each resource and execution.

    Any storage can implement it. Its writes must check the mark and apply in one atomic step:
    a token with a lower epoch than the mark is refused with `StaleLeaseFenceError`, one with a
    higher epoch raises it, and a step key that has been applied isn't applied again.
    """

    def advance(self, resource: str, token: FenceToken) -> None:
        """Raise the mark to the token's epoch, without writing anything else.

        Called at a takeover, before the new owner runs a step.

        Raises:
            StaleLeaseFenceError: The mark is higher.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectIntent:
    """What is recorded before a call."""

    token: FenceToken
    sink: str
    key: str
    effect: str
    kind: EffectKind
    resource: str
    request: Any
    request_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRecord:
    """An effect's row.

    Attributes:
        calls: Calls that were announced; the last of them may not have been made.
        since_first_call: By the database's clock.
        since_last_call: By the database's clock.
        resolution: Who decided about it in doubt, and why.
    """

    sink: str
    key: str
    execution_id: UUID
    step_key: str
    effect: str
    kind: EffectKind
    resource: str
    request: Any
    request_digest: str
    status: EffectStatus
    result: Any
    error: Any
    epoch: int
    owner: str
    calls: int
    since_first_call: timedelta
    since_last_call: timedelta
    created_at: datetime
    confirmed_at: datetime | None
    resolution: Any


def check_same_request(record: EffectRecord, intent: EffectIntent) -> None:
    """A key stands for one request to one effect.

    Raises:
        EffectKeyConflictError: It was used for another.
    """
    if (record.effect, record.request_digest) == (intent.effect, intent.request_digest):
        return
    instead = "with another request" if record.effect == intent.effect else f"not {intent.effect!r}"
    raise EffectKeyConflictError(
        f"key {intent.key!r} at sink {intent.sink!r} was used by execution {record.execution_id}"
        f" for effect {record.effect!r}, {instead}",
        sink=intent.sink,
        key=intent.key,
        execution_id=str(record.execution_id),
        effect=record.effect,
        recorded_digest=record.request_digest,
        digest=intent.request_digest,
    )


def in_doubt(record: EffectRecord, token: FenceToken) -> Event:
    """The audit event of an outcome that became unknown."""
    return Event(
        execution_id=record.execution_id,
        name=EventName.EFFECT_IN_DOUBT,
        epoch=token.epoch,
        owner=token.owner,
        step_key=token.step_key,
        sink=record.sink,
        details={"key": record.key, "effect": record.effect, "error": record.error},
    )


def resolved(record: EffectRecord) -> Event:
    """The audit event of a person's decision."""
    return Event(
        execution_id=record.execution_id,
        name=EventName.EFFECT_RESOLVED,
        epoch=record.epoch,
        step_key=record.step_key,
        sink=record.sink,
        payload_digest=record.request_digest,
        details={"key": record.key, "effect": record.effect, **record.resolution},
    )


def not_resolvable(record: EffectRecord, execution: Status) -> ExecutionStateError:
    """Why nobody may decide about this effect now."""
    if record.status in UNKNOWN_OUTCOME:
        why = f"execution {record.execution_id} is {execution}, not parked: it may be calling"
    elif record.resolution is not None:
        why = f"{record.resolution['by']} decided already ({record.resolution['why']})"
    else:
        why = f"it is {record.status}"
    return ExecutionStateError(
        f"effect {record.key!r} at {record.sink!r} can't be resolved: {why}",
        execution_id=str(record.execution_id),
        execution=str(execution),
        status=str(record.status),
        resolution=record.resolution,
    )
