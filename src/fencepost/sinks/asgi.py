"""The server's side of fenced HTTP: ASGI middleware that checks keys and fences for your own API.

A request with an `Idempotency-Key`, a `Fencing-Token`, or both runs inside one SQL transaction that
has raised the mark and claimed the key. A handler that makes its writes in
`scope["fencepost.session"]` is applied once, under the fence, or not at all. A handler that writes
elsewhere is not: see the how-to on APIs for what still holds.

The middleware knows nothing of who asks. Put it behind your authentication, and give `tenant=`
where clients mustn't see each other's answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from fencepost.errors import EffectKeyConflictError, StaleLeaseFenceError
from fencepost.sinks import http
from fencepost.sinks.asgi_store import Ask, Opened, RequestStore, Response
from fencepost.sinks.contract import SinkBusyError
from fencepost.sinks.problems import BODY_TOO_LARGE, RESPONSE_TOO_LARGE, Problem, problem_of

__all__ = ["FenceMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
T = TypeVar("T")

MEBIBYTE = 1024 * 1024


class FenceMiddleware:
    """Checks fences and keys before the application, and commits before its answer leaves.

    Args:
        app: The ASGI application.
        engine: Of the database that the application's handlers write to (PostgreSQL or SQLite),
            with the tables of `sinks.tables`. Each guarded request holds one connection.
        methods: Guarded ones.
        require_key: Refuse a guarded request without `Idempotency-Key`.
        require_fence: Refuse a guarded request without `Fencing-Token`.
        tenant: From the ASGI scope, whose keys and marks these are; by default everyone's.
        keep: Whether a response of this status is final: committed, and repeated to whoever sends
            the key again. Every other one is rolled back, and the key is free again.
        body_limit: Bytes of a guarded request's body.
        response_limit: Bytes of a guarded request's response. A longer one is rolled back.
        wait: How long a request waits for another one with its key or at its resource.
        idle: After this long PostgreSQL ends the transaction of a server that does nothing.
        threads: In which the middleware's own SQL runs.
    """

    def __init__(
        self,
        app: App,
        engine: sa.Engine,
        *,
        methods: Collection[str] = ("POST", "PUT", "PATCH", "DELETE"),
        require_key: bool = False,
        require_fence: bool = False,
        tenant: Callable[[Scope], str] = lambda _scope: "",
        keep: Callable[[int], bool] = lambda status: status < 400,
        body_limit: int = MEBIBYTE,
        response_limit: int = MEBIBYTE,
        wait: timedelta = timedelta(seconds=1),
        idle: timedelta = timedelta(seconds=30),
        threads: int = 16,
    ) -> None:
        self._app = app
        self._store = RequestStore(engine, wait=wait, idle=idle)
        self._methods = frozenset(methods)
        self._require = {http.IDEMPOTENCY_KEY: require_key, http.FENCING_TOKEN: require_fence}
        self._tenant = tenant
        self._keep = keep
        self._body_limit = body_limit
        self._response_limit = response_limit
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="fencepost-sink")
        self._under_way: set[tuple[str, str]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fencing = _path(scope) == http.FENCE_PATH
        if not fencing and (scope["method"] not in self._methods or not self._guards(scope)):
            await self._app(scope, receive, send)
            return
        try:
            if fencing:
                await self._advance(scope, send)
            else:
                await self._guard(scope, receive, send)
        except Problem as problem:
            await problem.send(send)

    def _guards(self, scope: Scope) -> bool:
        return any(self._require.values()) or any(
            _header(scope, name) is not None for name in self._require
        )

    async def _advance(self, scope: Scope, send: Send) -> None:
        if scope["method"] != "POST":
            raise Problem(405, "sink.method", "The fence is raised by POST", allow="POST")
        field = _header(scope, http.FENCING_TOKEN)
        with problem_of(http.HeaderError):
            token, resource = http.parse_fence(field or "")
        await self._sql(partial(self._store.advance, self._tenant(scope), resource, token))
        epoch = (http.FENCING_EPOCH.lower().encode(), str(token.epoch).encode())
        await send({"type": "http.response.start", "status": 204, "headers": [epoch]})
        await send({"type": "http.response.body", "body": b""})

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        for name, required in self._require.items():
            if required and _header(scope, name) is None:
                raise Problem(400, "sink.header-required", f"{name} is required here")
        body = await _body(scope, receive, self._body_limit)
        if body is None:
            return  # the client has gone
        ask = self._ask(scope, body)
        under_way = (ask.tenant, ask.key or "")
        if ask.key is not None and under_way in self._under_way:
            # Known without waiting for the database's lock in a thread that others need.
            with problem_of(SinkBusyError):
                raise SinkBusyError("a request with this key is under way", service="sink")
        self._under_way.add(under_way)
        over = partial(self._under_way.discard, under_way)
        try:
            await self._in_transaction(ask, over, _Exchange(scope, _again(body, receive), send))
        finally:
            over()

    def _ask(self, scope: Scope, body: bytes) -> Ask:
        key, fence = (_header(scope, name) for name in self._require)
        token = resource = None
        with problem_of(http.HeaderError):
            if fence is not None:
                token, resource = http.parse_fence(fence)
            if key is not None:
                key = http.parse_idempotency_key(key)
        return Ask(self._tenant(scope), key, token, resource, _digest(scope, body))

    async def _in_transaction(
        self, ask: Ask, over: Callable[[], None], exchange: _Exchange
    ) -> None:
        opened = await self._sql(partial(self._store.open, ask))
        if isinstance(opened, Response):
            over()
            replayed = (http.REPLAYED.lower().encode(), b"true")
            await _send(exchange.send, opened.status, [*opened.headers, replayed], opened.body)
            return
        held = _Held(opened, self, exchange.send, over)
        inner = {
            **exchange.scope,
            "extensions": {},  # trailers, files by path: what isn't in the response isn't kept
            "fencepost.session": opened.session,
            "fencepost.key": ask.key,
            "fencepost.token": ask.token,
            "fencepost.resource": ask.resource,
        }
        try:
            await self._app(inner, exchange.receive, held.send)
        finally:
            await asyncio.shield(self._in_thread(opened.abandon))

    async def decide(self, opened: Opened, response: Response, *, too_large: bool) -> None:
        """Commit what is final, roll back the rest.

        Raises:
            Problem: The response isn't the one to send.
        """
        if too_large:
            await self._in_thread(opened.abandon)
            raise Problem(
                500,
                RESPONSE_TOO_LARGE,
                f"The response has more than {self._response_limit} bytes, so it can't be kept for"
                " a repetition. What the handler wrote in the request's session was rolled back",
            )
        if self._keep(response.status):
            await self._sql(partial(opened.land, response))
        else:
            await self._in_thread(opened.abandon)

    @property
    def response_limit(self) -> int:
        """Bytes."""
        return self._response_limit

    async def _sql(self, work: Callable[[], T]) -> T:
        with problem_of(
            StaleLeaseFenceError, EffectKeyConflictError, SinkBusyError, exc.SQLAlchemyError
        ):
            return await self._in_thread(work)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


@dataclass(frozen=True, slots=True)
class _Exchange:
    scope: Scope
    receive: Receive
    send: Send


class _Held:
    """Holds a response back until its transaction has been decided."""

    def __init__(
        self,
        opened: Opened,
        middleware: FenceMiddleware,
        send: Send,
        over: Callable[[], None],
    ) -> None:
        self._opened = opened
        self._middleware = middleware
        self._send = send
        self._over = over
        self._start: Message = {"status": 500, "headers": []}
        self._body = bytearray()
        self._too_large = False
        self._sent = False

    async def send(self, message: Message) -> None:
        """What the application takes for the server's `send`."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        if message["type"] != "http.response.body" or self._sent:
            return
        chunk = message.get("body", b"")
        self._too_large |= len(self._body) + len(chunk) > self._middleware.response_limit
        if not self._too_large:
            self._body += chunk
        if not message.get("more_body", False):
            self._sent = True
            await self._finish()

    async def _finish(self) -> None:
        headers = [(bytes(k), bytes(v)) for k, v in self._start.get("headers", [])]
        response = Response(self._start["status"], headers, bytes(self._body))
        problem = None
        try:
            await self._middleware.decide(self._opened, response, too_large=self._too_large)
        except Problem as instead:
            problem = instead
        # Before the answer leaves: who has it may send the key again at once.
        self._over()
        if problem is not None:
            await problem.send(self._send)
        else:
            await _send(self._send, response.status, response.headers, response.body)


async def _send(send: Send, status: int, headers: Any, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "").rstrip("/"))


def _header(scope: Scope, name: str) -> str | None:
    wanted = name.lower().encode()
    found = [value for key, value in scope["headers"] if key.lower() == wanted]
    if not found:
        return None
    # Repeated, it makes no valid field, and is refused where it is read.
    return b", ".join(found).decode("latin-1")


async def _body(scope: Scope, receive: Receive, limit: int) -> bytes | None:
    """A request's body, or None if the client has gone."""
    too_large = Problem(413, BODY_TOO_LARGE, f"A request may have {limit} bytes here")
    announced = _header(scope, "content-length") or "0"
    if announced.isdecimal() and int(announced) > limit:
        raise too_large
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_large
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    unread = [body]

    async def receive_again() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return receive_again


def _digest(scope: Scope, body: bytes) -> str:
    raw_query = scope.get("query_string", b"")
    target = [scope["method"], scope["path"], raw_query.decode("latin-1")]
    hashed = hashlib.sha256(json.dumps(target).encode())
    hashed.update(body)
    return f"sha256:{hashed.hexdigest()}"
