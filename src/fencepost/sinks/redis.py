"""Fences and keys in Redis 6.2+ or Valkey: check and write are one Lua script.

Keys, below the prefix, with the resource's name in a hash tag: `fence:{resource}:<execution id>`
is a hash of epoch and owner, `applied:{resource}:<key>` a hash of result, epoch and digest, and
`refused:{resource}` a list of the last 100 stale writes. On a cluster, the keys that a write
touches must carry the same tag: `tag(resource)` gives it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any
from urllib.parse import quote

import redis

from fencepost.errors import ConfigurationError, ServiceUnavailableError
from fencepost.fence import FenceToken
from fencepost.sinks.contract import Applied, Refusal, SinkCall, check_names, conflict, stale

__all__ = ["RedisSink", "RedisWrite", "tag"]

Argument = str | bytes | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisWrite:
    """A write in Lua.

    Redis doesn't undo what a script did before an error: let it check everything before its
    first write.

    Attributes:
        lua: The body of a function that sees `KEYS` and `ARGV`. What it returns must be
            JSON-compatible: text in UTF-8, a number, a boolean, a table, nil.
        keys: Its `KEYS`.
        args: Its `ARGV`; Redis gives them to it as text.
    """

    lua: str
    keys: Sequence[str | bytes] = ()
    args: Sequence[Argument] = ()


class RedisSink:
    """Applies Lua writes. Implements `ApplyingSink`.

    The fence is as durable as the server: a mark that a failover, a flush or an eviction loses
    lets a zombie's write pass. Use append-only files and the policy `noeviction`.

    Args:
        client: Of the server that is written to.
        prefix: Put before the sink's own keys.
        retention: How long marks and applied keys are kept after they were last used; by default
            for ever. Whatever is still running must be younger.
    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        prefix: str = "fencepost:sink:",
        retention: timedelta | None = None,
    ) -> None:
        if retention is not None and retention < timedelta(milliseconds=1):
            raise ConfigurationError(f"a sink can't keep its marks for {retention}")
        self._client = client
        self._prefix = prefix
        self._retention = 0 if retention is None else retention // timedelta(milliseconds=1)

    def advance(self, resource: str, token: FenceToken) -> None:
        """See `FencedSink.advance`."""
        check_names(resource)
        script = f"{_source('fence')}\n{_source('advance')}"
        fence = self._fence(resource, token)
        answer = self._run(script, fence, self._facts(resource, token, "", ""))
        if answer[0] == "stale":
            raise stale(resource, token, int(answer[1]))

    def apply(self, call: SinkCall, write: RedisWrite) -> Applied[Any]:
        """Check the fence and the key, and run the write, as one script.

        Raises:
            StaleLeaseFenceError: The mark is higher; it is on record.
            EffectKeyConflictError: The key was applied for a request with another digest.
            ServiceUnavailableError: The server doesn't answer, or the script failed. Then it may
                have been applied: call again.
        """
        check_names(call.resource, call.key)
        script = "\n".join(
            [
                _source("fence"),
                f"local function write(KEYS, ARGV)\n{write.lua}\nend",
                _source("apply"),
            ]
        )
        known = f"{self._prefix}applied:{tag(call.resource)}:{call.key}"
        answer = self._run(
            script,
            [*self._fence(call.resource, call.token), known, *write.keys],
            [
                *self._facts(call.resource, call.token, call.key, call.digest or ""),
                *write.args,
            ],
        )
        match answer:
            case ["stale", current]:
                raise stale(call.resource, call.token, int(current))
            case ["conflict", digest]:
                raise conflict(call.key, call.resource, call.digest, digest)
            case ["replayed", result, epoch]:
                return Applied(result=json.loads(result), replayed=True, epoch=int(epoch))
            case ["applied", result]:
                mine = call.token.epoch
                return Applied(result=json.loads(result), replayed=False, epoch=mine)
            case _:
                raise ServiceUnavailableError(f"Redis gave a strange answer: {answer!r}")

    def set(
        self,
        call: SinkCall,
        key: str | bytes,
        value: Argument,
        *,
        ttl: timedelta | None = None,
    ) -> Applied[Any]:
        """A fenced `SET`; the receipt's result is true.

        Args:
            call: Which write this is.
            key: What to set.
            value: What to set it to.
            ttl: For how long; by default for ever.

        Raises:
            StaleLeaseFenceError, EffectKeyConflictError, ServiceUnavailableError: See `apply`.
        """
        milliseconds = 0 if ttl is None else max(1, ttl // timedelta(milliseconds=1))
        return self.apply(
            call, RedisWrite(lua=_source("set"), keys=[key], args=[value, milliseconds])
        )

    def refusals(self, resource: str) -> list[Refusal]:
        """The last stale writes that were refused, at most 100, oldest first."""
        try:
            stored: Any = self._client.lrange(f"{self._prefix}refused:{tag(resource)}", 0, -1)
        except redis.RedisError as problem:
            raise _unavailable(problem) from problem
        return [_refusal(json.loads(entry)) for entry in reversed(stored)]

    def _fence(self, resource: str, token: FenceToken) -> list[str | bytes]:
        return [
            f"{self._prefix}fence:{tag(resource)}:{token.execution_id}",
            f"{self._prefix}refused:{tag(resource)}",
        ]

    def _facts(self, resource: str, token: FenceToken, key: str, digest: str) -> list[Argument]:
        execution_id, retention = str(token.execution_id), self._retention
        return [resource, execution_id, token.epoch, token.owner, retention, key, digest]

    def _run(self, script: str, keys: Sequence[str | bytes], args: Sequence[Argument]) -> list[str]:
        # Not `register_script`: it takes the digest from the server, which may be away right now.
        digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        try:
            try:
                answer: Any = self._client.evalsha(digest, len(keys), *keys, *args)
            except redis.exceptions.NoScriptError:
                answer = self._client.eval(script, len(keys), *keys, *args)
        except redis.RedisError as problem:
            raise _unavailable(problem) from problem
        return [part.decode() if isinstance(part, bytes) else str(part) for part in answer]


def tag(resource: str) -> str:
    """The resource as a hash tag: keys that contain the same tag live on the same node."""
    return "{" + quote(resource, safe="/:@.,-_~ ") + "}"


def _source(name: str) -> str:
    return (resources.files(__package__) / "lua" / f"{name}.lua").read_text("utf-8")


def _unavailable(problem: redis.RedisError) -> ServiceUnavailableError:
    silent = isinstance(problem, redis.ConnectionError | redis.TimeoutError)
    what = "does not answer" if silent else "refused a script"
    return ServiceUnavailableError(f"Redis {what}: {problem}", service="redis")


def _refusal(stored: dict[str, Any]) -> Refusal:
    return Refusal(
        resource=stored["resource"],
        execution_id=stored["execution_id"],
        held=int(stored["held"]),
        current=int(stored["current"]),
        owner=stored["owner"],
        current_owner=stored["current_owner"],
        key=stored["key"] or None,
        digest=stored["digest"] or None,
        at=datetime.fromtimestamp(float(stored["at"]), UTC),
    )
