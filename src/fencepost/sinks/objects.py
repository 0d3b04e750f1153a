"""Objects in an S3-compatible store, published under a fence by conditional writes.

Each resource has a manifest, one object that holds the marks, the applied keys and the name of
the published content. It is only ever swapped against the version that was read (`If-Match`), so
check and write are the same step. Contents are objects named after their digest: what a refused
writer has uploaded stays invisible.

The store must be strongly consistent and honour `If-None-Match: *` and `If-Match` on PUT. Whether
it does is tried out before the first use.
"""

from __future__ import annotations

import hashlib
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import uuid4

from fencepost.errors import ConfigurationError, ServiceUnavailableError, StaleLeaseFenceError
from fencepost.fence import FenceToken
from fencepost.sinks.contract import Applied, Refusal, SinkBusyError, SinkCall, check_names
from fencepost.sinks.manifest import Manifest

__all__ = ["Boto3Store", "ObjectSink", "ObjectStore", "PublishedObject"]

Change = Callable[[bytes | None], bytes]

ATTEMPTS = 40
"""Swaps that are tried while others swap the same manifest."""


class ObjectStore(Protocol):
    """The three calls that the sink needs."""

    def get(self, name: str) -> tuple[bytes, str] | None:
        """An object's content and entity tag, or None."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one. Whether it was written."""
        ...

    def put_if_match(self, name: str, data: bytes, tag: str) -> bool:
        """Overwrite an object if it still has this entity tag. Whether it was written."""
        ...


@dataclass(frozen=True, slots=True)
class PublishedObject:
    """What was published.

    Attributes:
        name: Of the object with the content.
        sha256: Of the content, in hex.
        size: In bytes.
    """

    name: str
    sha256: str
    size: int


class ObjectSink:
    """Publishes objects. Implements `ApplyingSink`.

    Args:
        store: Such as a `Boto3Store`.
        prefix: Put before every object's name.
        remembered: Keys and marks that are kept for each resource; the oldest are forgotten.
    """

    def __init__(
        self, store: ObjectStore, *, prefix: str = "fencepost/", remembered: int = 1_000
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._remembered = remembered
        self._tried = threading.Lock()
        self._honest = False

    def advance(self, resource: str, token: FenceToken) -> None:
        """See `FencedSink.advance`.

        Raises:
            StaleLeaseFenceError: The mark is higher.
            SinkBusyError: Others kept swapping the manifest.
            ConfigurationError: The store ignores conditions.
        """
        check_names(resource)
        for attempt in self._attempts(resource):
            manifest, tag = self._manifest(resource)
            self._check(resource, manifest, token, None)
            if manifest.mark(token) == (token.epoch, token.owner):
                return
            if self._swap(resource, manifest.advanced(token, self._remembered), tag):
                return
            _back_off(attempt)

    def apply(self, call: SinkCall, write: Change) -> Applied[PublishedObject]:
        """Publish what a function makes of the present content.

        Args:
            call: Which write this is.
            write: Given the content, or None where nothing is published; returns the new content.
                It is called again where another writer came in between.

        Raises:
            StaleLeaseFenceError: The mark is higher; it is on record.
            EffectKeyConflictError: The key was applied for a request with another digest.
            SinkBusyError: Others kept swapping the manifest.
            ConfigurationError: The store ignores conditions.
        """
        check_names(call.resource, call.key)
        nonce = uuid4().hex
        for attempt in self._attempts(call.resource):
            manifest, tag = self._manifest(call.resource)
            self._check(call.resource, manifest, call.token, call)
            first = manifest.find(call)
            if first is not None:
                self._keep_up(call)
                return Applied(
                    result=PublishedObject(**first.result),
                    # Where the answer to our own swap was lost, and the client sent it again.
                    replayed=first.nonce != nonce,
                    epoch=first.epoch,
                )
            content = write(self._content(manifest))
            published = self._upload(call.resource, content)
            result = asdict(published)
            landed = manifest.with_applied(call, result, nonce, result, self._remembered)
            if self._swap(call.resource, landed, tag):
                return Applied(result=published, replayed=False, epoch=call.token.epoch)
            _back_off(attempt)
        raise AssertionError("unreachable")  # the attempts end in an error

    def publish(self, call: SinkCall, content: bytes) -> Applied[PublishedObject]:
        """Publish bytes; see `apply`."""
        return self.apply(call, lambda _present: content)

    def read(self, resource: str) -> bytes | None:
        """What is published, or None."""
        return self._content(self._manifest(resource)[0])

    def published(self, resource: str) -> PublishedObject | None:
        """Where to find what is published, or None."""
        content = self._manifest(resource)[0].content
        return None if content is None else PublishedObject(**content)

    def manifest_name(self, resource: str) -> str:
        """The name of the resource's manifest."""
        return f"{self._folder(resource)}/manifest.json"

    def refusals(self, resource: str) -> list[Refusal]:
        """The last stale writes that were refused, oldest first."""
        stored = self._store.get(self._refusals_name(resource))
        if stored is None:
            return []
        return [_refusal(resource, entry) for entry in Manifest.load(stored[0]).content]

    # -- the parts of a write --------------------------------------------------------------

    def _attempts(self, resource: str) -> Iterator[int]:
        self._try_out()
        yield from range(ATTEMPTS)
        raise SinkBusyError(
            f"{resource!r} was swapped by others {ATTEMPTS} times in a row",
            service="sink",
            resource=resource,
        )

    def _manifest(self, resource: str) -> tuple[Manifest, str | None]:
        stored = self._store.get(self.manifest_name(resource))
        return (Manifest(), None) if stored is None else (Manifest.load(stored[0]), stored[1])

    def _swap(self, resource: str, manifest: Manifest, tag: str | None) -> bool:
        name = self.manifest_name(resource)
        if tag is None:
            return self._store.put_if_absent(name, manifest.dump())
        return self._store.put_if_match(name, manifest.dump(), tag)

    def _keep_up(self, call: SinkCall) -> None:
        """A replay by a new owner raises the mark like every other write of its own."""
        self.advance(call.resource, call.token)

    def _content(self, manifest: Manifest) -> bytes | None:
        if manifest.content is None:
            return None
        name = manifest.content["name"]
        stored = self._store.get(name)
        if stored is None:
            raise ServiceUnavailableError(f"the published object {name} is gone", service="sink")
        return stored[0]

    def _upload(self, resource: str, content: bytes) -> PublishedObject:
        sha256 = hashlib.sha256(content).hexdigest()
        name = f"{self._folder(resource)}/{sha256}"
        # Where there is one already it has the same content.
        self._store.put_if_absent(name, content)
        return PublishedObject(name, sha256, len(content))

    def _folder(self, resource: str) -> str:
        readable = re.sub(r"[^A-Za-z0-9_]+", "-", resource)[:60].strip("-")
        return f"{self._prefix}{readable}-{hashlib.sha256(resource.encode()).hexdigest()[:32]}"

    # -- stale writes ----------------------------------------------------------------------

    def _check(
        self, resource: str, manifest: Manifest, token: FenceToken, call: SinkCall | None
    ) -> None:
        try:
            manifest.check(resource, token)
        except StaleLeaseFenceError:
            self._record(resource, manifest, token, call)
            raise

    def _refusals_name(self, resource: str) -> str:
        return f"{self._folder(resource)}/refused.json"

    def _record(
        self, resource: str, manifest: Manifest, token: FenceToken, call: SinkCall | None
    ) -> None:
        current, current_owner = manifest.mark(token)
        refusal: dict[str, Any] = {
            "execution_id": str(token.execution_id),
            "held": token.epoch,
            "current": current,
            "owner": token.owner,
            "current_owner": current_owner,
            "key": call.key if call is not None else None,
            "digest": call.digest if call is not None else None,
            "at": datetime.now(UTC).isoformat(),
        }
        name = self._refusals_name(resource)
        for attempt in range(ATTEMPTS):
            stored = self._store.get(name)
            if stored is None:
                if self._store.put_if_absent(name, Manifest(content=[refusal]).dump()):
                    return
            else:
                last = [*Manifest.load(stored[0]).content, refusal][-100:]
                if self._store.put_if_match(name, Manifest(content=last).dump(), stored[1]):
                    return
            _back_off(attempt)

    # -- honesty ---------------------------------------------------------------------------

    def _try_out(self) -> None:
        """A store that ignores conditions would let everything pass, and say nothing."""
        if self._honest:
            return
        with self._tried:
            name = f"{self._prefix}conditions-are-honoured"
            first = self._store.put_if_absent(name, b"yes")
            if first and self._store.put_if_absent(name, b"no"):
                raise ConfigurationError("this object store ignores If-None-Match on PUT")
            if self._store.put_if_match(name, b"no", f'"{uuid4().hex}"'):
                raise ConfigurationError("this object store ignores If-Match on PUT")
            self._honest = True


class Boto3Store:
    """An `ObjectStore` on S3 or what speaks its protocol. Needs `fencepost[objects]`.

    Args:
        client: `boto3.client("s3", ...)`.
        bucket: Must exist.
    """

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def get(self, name: str) -> tuple[bytes, str] | None:
        """See `ObjectStore.get`."""
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=name)
            return answer["Body"].read(), answer["ETag"]
        except Exception as problem:
            if _code(problem) in ("NoSuchKey", "404"):
                return None
            raise _translated(problem) from problem

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See `ObjectStore.put_if_absent`."""
        return self._put(name, data, IfNoneMatch="*")

    def put_if_match(self, name: str, data: bytes, tag: str) -> bool:
        """See `ObjectStore.put_if_match`."""
        return self._put(name, data, IfMatch=tag)

    def _put(self, name: str, data: bytes, **condition: str) -> bool:
        for attempt in range(ATTEMPTS):
            try:
                self._client.put_object(Bucket=self._bucket, Key=name, Body=data, **condition)
            except Exception as problem:
                code = _code(problem)
                if code in ("ConditionalRequestConflict", "409"):
                    # Another conditional write is under way, and may fail: nothing is decided.
                    _back_off(attempt)
                    continue
                # NoSuchKey answers an If-Match whose object was deleted.
                gone = code == "NoSuchKey" and "IfMatch" in condition
                if gone or code in ("PreconditionFailed", "412"):
                    return False
                raise _translated(problem) from problem
            return True
        raise SinkBusyError(f"{name} is being written by others all the time", service="sink")


def _code(problem: Exception) -> str:
    response: Any = getattr(problem, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def _translated(problem: Exception) -> Exception:
    if type(problem).__name__ == "ParamValidationError":
        return ConfigurationError(
            f"this botocore knows no conditional writes: upgrade it ({problem})"
        )
    return ServiceUnavailableError(f"the object store: {problem}", service="sink")


def _back_off(attempt: int) -> None:
    time.sleep(random.uniform(0, min(0.5, 0.005 * 2**attempt)))


def _refusal(resource: str, stored: dict[str, Any]) -> Refusal:
    at = datetime.fromisoformat(stored["at"])
    return Refusal(resource=resource, **{**stored, "at": at})
