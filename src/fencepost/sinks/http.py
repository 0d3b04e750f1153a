"""The client's side of fenced HTTP: headers for any client, and what the answers mean.

The server's side is `sinks.asgi`, or whatever else keeps to the same headers and problem types.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any
from uuid import UUID

from fencepost.errors import ConfigurationError, ServiceUnavailableError
from fencepost.fence import FenceToken
from fencepost.sinks import sfv
from fencepost.sinks.contract import (
    Applied,
    SinkBusyError,
    SinkCall,
    check_names,
    conflict,
    stale,
)
from fencepost.sinks.sfv import HeaderError

__all__ = [
    "FENCE_PATH",
    "HeaderError",
    "HttpAnswer",
    "HttpSink",
    "check_answer",
    "fence_headers",
    "idempotency_headers",
    "parse_fence",
    "parse_idempotency_key",
]

IDEMPOTENCY_KEY = "Idempotency-Key"
FENCING_TOKEN = "Fencing-Token"  # noqa: S105 - a header's name
REPLAYED = "Idempotent-Replayed"
FENCING_EPOCH = "Fencing-Epoch"
FENCE_PATH = "/.well-known/fencepost/fence"

# Problem types (RFC 9457), in the answers' JSON.
STALE = "fence.stale-epoch"
KEY_CONFLICT = "effect.key-conflict"
IN_PROGRESS = "sink.busy"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a server said.

    Attributes:
        status: HTTP status code.
        headers: Names are compared without regard to case.
        body: Undecoded.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """A header's value, whatever the case of its name."""
        found = (value for key, value in self.headers.items() if key.lower() == name.lower())
        return next(found, None)


Send = Callable[[str, str, Mapping[str, str], bytes], HttpAnswer]
"""`(method, url, headers, body)` to an answer, whatever its status; raises if there is none."""


def idempotency_headers(key: str, *, structured: bool = True) -> dict[str, str]:
    """The `Idempotency-Key` header.

    Args:
        key: 1 to 255 characters. What isn't printable ASCII is percent-encoded.
        structured: As the IETF draft has it, a quoted string; False for APIs that want it bare,
            such as Stripe's.
    """
    check_names("-", key)
    return {IDEMPOTENCY_KEY: sfv.string(key) if structured else sfv.printable(key)}


def fence_headers(token: FenceToken, resource: str) -> dict[str, str]:
    """The `Fencing-Token` header: a structured string, the execution, with parameters.

    For example: `"8e03978e-...";epoch=2;owner="w1:ab12";resource="order:42";step="...:pay:1"`.
    """
    check_names(resource)
    facts: dict[str, str | int] = {
        "epoch": token.epoch,
        "owner": token.owner,
        "resource": resource,
        "step": token.step_key,
    }
    return {FENCING_TOKEN: sfv.item(str(token.execution_id), facts)}


def parse_idempotency_key(value: str) -> str:
    """Read an `Idempotency-Key`: a structured string, or bare as many clients send it.

    Raises:
        HeaderError: It is empty, too long, or no structured string though it begins like one.
    """
    text = value.strip()
    if not text.startswith('"'):
        return _checked("key", text)
    key, parameters = sfv.parse_item(text)
    if parameters or not isinstance(key, str):
        raise HeaderError(f"{IDEMPOTENCY_KEY} has no parameters: {value[:200]!r}")
    return _checked("key", key)


def parse_fence(value: str) -> tuple[FenceToken, str]:
    """Read a `Fencing-Token`: the token, and the resource.

    Raises:
        HeaderError: Something is missing or isn't what it should be.
    """
    execution_id, facts = sfv.parse_item(value)
    epoch, owner, step = facts.get("epoch"), facts.get("owner"), facts.get("step", "")
    resource = facts.get("resource")
    if type(epoch) is not int or epoch < 1:
        raise HeaderError(f"{FENCING_TOKEN} needs epoch=<a number from 1>: {value[:200]!r}")
    if not all(isinstance(text, str) for text in (owner, step, resource)):
        raise HeaderError(f"{FENCING_TOKEN} needs owner and resource: {value[:200]!r}")
    try:
        execution = UUID(str(execution_id))
    except ValueError as problem:
        raise HeaderError(f"{FENCING_TOKEN} begins with a UUID: {value[:200]!r}") from problem
    token = FenceToken(execution, epoch, str(owner), str(step))
    return token, _checked("resource", str(resource))


def _checked(what: str, name: str) -> str:
    try:
        check_names(name)
    except Exception as problem:
        raise HeaderError(f"the {what}: {problem}") from problem
    return name


def check_answer(call: SinkCall, answer: HttpAnswer) -> bool:
    """Raise what the server's problem types say; every other answer is left to the caller.

    Returns:
        Whether the answer is the first one to this key, sent again.

    Raises:
        StaleLeaseFenceError: The token is below the mark.
        EffectKeyConflictError: The key was used for another request.
        SinkBusyError: A request with this key, or at this resource, is under way.
    """
    if answer.status < 400:
        return (answer.header(REPLAYED) or "").strip() in ("?1", "true")
    problem = _problem(answer)
    match problem.get("type"):
        case str(kind) if kind.endswith(STALE):
            raise stale(call.resource, call.token, int(problem.get("current") or 0))
        case str(kind) if kind.endswith(KEY_CONFLICT):
            raise conflict(call.key, call.resource, call.digest, problem.get("recorded_digest"))
        case str(kind) if kind.endswith(IN_PROGRESS):
            raise SinkBusyError(
                str(problem.get("detail", "a request with this key is under way")),
                service="sink",
                retry_after=answer.header("Retry-After"),
            )
        case _:
            return False


def _problem(answer: HttpAnswer) -> dict[str, Any]:
    if "json" not in (answer.header("Content-Type") or ""):
        return {}
    try:
        document = json.loads(answer.body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


class HttpSink:
    """A server that checks fences, from the client's side. Implements `ApplyingSink`.

    Args:
        url: Where the server's application begins, such as `https://shop.example/api`.
        headers: Sent with every request of the sink's own, such as `Authorization`; or a function
            that gives them.
        timeout: For each request of the sink's own.
        send: Another way to send those requests.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | Callable[[], Mapping[str, str]] = MappingProxyType({}),
        timeout: timedelta = timedelta(seconds=10),
        send: Send | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"a fenced server's URL is http:// or https://, not {url!r}")
        self._url = url.rstrip("/")
        self._headers = headers
        self._send = send or urllib_send(timeout)

    def advance(self, resource: str, token: FenceToken) -> None:
        """See `FencedSink.advance`.

        Raises:
            StaleLeaseFenceError: The mark is higher.
            SinkBusyError: A request at this resource is under way.
            ServiceUnavailableError: The server doesn't answer, or with something else.
        """
        own = self._headers() if callable(self._headers) else self._headers
        headers = {**own, **fence_headers(token, resource)}
        answer = self._send("POST", self._url + FENCE_PATH, headers, b"")
        check_answer(_Raising(resource, token), answer)
        # Any server may answer a request that it doesn't understand with a friendly page.
        if answer.status != 204 or answer.header(FENCING_EPOCH) != str(token.epoch):
            raise ServiceUnavailableError(
                f"{self._url}{FENCE_PATH} answered {answer.status}: {answer.body[:200]!r}",
                service="sink",
                status=answer.status,
            )

    def headers(self, call: SinkCall) -> dict[str, str]:
        """What a request needs for both checks: key and fence."""
        return idempotency_headers(call.key) | fence_headers(call.token, call.resource)

    def apply(
        self, call: SinkCall, write: Callable[[dict[str, str]], HttpAnswer]
    ) -> Applied[HttpAnswer]:
        """Send a request with any client, and understand the answer.

        Args:
            call: Which write this is.
            write: Given the headers to add; sends the request and returns the answer, which may
                be an error that is the application's own.

        Raises:
            StaleLeaseFenceError, EffectKeyConflictError, SinkBusyError: See `check_answer`.
            Exception: What `write` raises. It may have landed all the same: call again.
        """
        answer = write(self.headers(call))
        replayed = check_answer(call, answer)
        return Applied(result=answer, replayed=replayed)


@dataclass(frozen=True, slots=True)
class _Raising:
    resource: str
    token: FenceToken
    key: str = ""
    digest: str | None = None


class _Stay(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET."""

    def redirect_request(self, *_: Any) -> None:
        return None


def urllib_send(timeout: timedelta) -> Send:
    """A `Send` by the standard library. It follows no redirects."""
    opener = urllib.request.build_opener(_Stay)

    def send(method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        request = urllib.request.Request(url, body, dict(headers), method=method)  # noqa: S310
        try:
            with opener.open(request, timeout=timeout.total_seconds()) as answer:
                return HttpAnswer(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as problem:
            with problem:
                return HttpAnswer(problem.code, dict(problem.headers), problem.read())
        except OSError as problem:
            raise ServiceUnavailableError(f"{url} doesn't answer: {problem}") from problem

    return send
