"""What every sink keeps to, whatever it stores things in.

1. A sink keeps a mark, the highest epoch that it has seen, for each resource *and* execution.
   Epochs of different executions are not comparable, so they never refuse each other.
2. A token below the mark is refused with `StaleLeaseFenceError`, also where its key is known.
   A token at the mark passes. One above it raises it.
3. A key that has been applied to a resource isn't applied to it again: its first result is
   returned, whoever asks. With another request's digest it is `EffectKeyConflictError`.
4. 1 to 3 and the write itself are one atomic step: once `advance` has returned, no write with a
   lower epoch lands any more.

`fencepost.testing.sinks.FencedSinkConformance` holds a sink to this.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from fencepost.effects.model import FencedSink
from fencepost.errors import (
    EffectKeyConflictError,
    PayloadError,
    ServiceUnavailableError,
    StaleLeaseFenceError,
)
from fencepost.fence import FenceToken

__all__ = [
    "Applied",
    "ApplyingSink",
    "Claim",
    "FencedSink",
    "Refusal",
    "SinkBusyError",
    "SinkCall",
    "check_names",
    "check_same_request",
    "conflict",
    "stale",
]

NAME_LIMIT = 255
"""Characters of a resource or a key."""

Res_co = TypeVar("Res_co", covariant=True)
Write_contra = TypeVar("Write_contra", contravariant=True)


class SinkBusyError(ServiceUnavailableError):
    """Another write holds the resource or the key. Nothing was done; try again."""

    code = "sink.busy"


class SinkCall(Protocol):
    """Which write this is. An effect's `EffectCall` is one."""

    @property
    def key(self) -> str:
        """The idempotency key: the same for every call of one effect."""
        ...

    @property
    def token(self) -> FenceToken:
        """Who writes."""
        ...

    @property
    def resource(self) -> str:
        """What the fence protects."""
        ...

    @property
    def digest(self) -> str | None:
        """Of the request, if there is one to compare under the same key."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A `SinkCall` for writes outside an effect.

    Attributes:
        key: 1 to 255 characters; `ctx.step_key` is a good one.
        token: `ctx.token`.
        resource: 1 to 255 characters.
        digest: Of the request; None where the key alone decides.
    """

    key: str
    token: FenceToken
    resource: str
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied(Generic[Res_co]):
    """A receipt: the write has landed, now or earlier.

    Attributes:
        result: Of the write that landed first under this key.
        replayed: The key had been applied; this call has written nothing.
        epoch: The epoch of the owner whose write it was; None if the sink doesn't say.
    """

    result: Res_co
    replayed: bool
    epoch: int | None = None


class ApplyingSink(FencedSink, Protocol[Write_contra, Res_co]):
    """A fenced sink with one way to write. What a write is differs: bytes, a function, a script."""

    def apply(self, call: SinkCall, write: Write_contra) -> Applied[Res_co]:
        """Check the fence and the key, and write; all of it or nothing, in one atomic step.

        Raises:
            StaleLeaseFenceError: The mark is higher. Nothing was written.
            EffectKeyConflictError: The key was applied for a request with another digest.
            SinkBusyError: Somebody else is writing. Nothing was written.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A stale write that a sink refused, as it has put it on record.

    Attributes:
        held: The epoch that the writer had.
        current: The mark that refused it.
        owner: The writer.
        current_owner: Who raised the mark.
        key: None if it wanted to raise the mark only.
        digest: Of the refused request, if it was known.
        at: By the sink's clock.
    """

    resource: str
    execution_id: str
    held: int
    current: int
    owner: str
    current_owner: str
    key: str | None
    digest: str | None
    at: datetime


def check_names(resource: str, key: str | None = None) -> None:
    """Refuse what some sink couldn't store.

    Raises:
        PayloadError: Empty, longer than 255 characters, or with characters that aren't text.
    """
    for what, name in (("resource", resource), ("key", key)):
        if name is None:
            continue
        if not 0 < len(name) <= NAME_LIMIT:
            raise PayloadError(f"a sink's {what} has 1 to {NAME_LIMIT} characters, not {len(name)}")
        if any(c == "\x00" or "\ud800" <= c <= "\udfff" for c in name):
            raise PayloadError(f"a sink's {what} holds a character that isn't text: {name!r}")


def stale(resource: str, token: FenceToken, current: int) -> StaleLeaseFenceError:
    """The error for a token below the mark."""
    error = StaleLeaseFenceError(
        token.execution_id, held=token.epoch, current=current, step_key=token.step_key
    )
    error.fields["resource"] = resource
    return error


def conflict(
    key: str, resource: str, digest: str | None, recorded: str | None
) -> EffectKeyConflictError:
    """The error for a key that was applied for another request."""
    return EffectKeyConflictError(
        f"key {key!r} was applied to {resource!r} for another request",
        key=key,
        resource=resource,
        recorded_digest=recorded,
        digest=digest,
    )


def check_same_request(call: SinkCall, recorded: str | None) -> None:
    """A key stands for one request, where both digests are known.

    Raises:
        EffectKeyConflictError: They differ.
    """
    if call.digest is not None and recorded is not None and call.digest != recorded:
        raise conflict(call.key, call.resource, call.digest, recorded)
