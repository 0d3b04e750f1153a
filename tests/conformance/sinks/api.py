"""A little API of our own, without a framework: `POST /things/<resource>` appends its body.

`uvicorn --factory tests.conformance.sinks.api:make`, with `API_DATABASE` in the environment.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from urllib.parse import unquote

import sqlalchemy as sa

from fencepost.sinks.asgi import App, FenceMiddleware, Message, Receive, Scope, Send
from fencepost.sinks.http import HttpAnswer
from fencepost.sinks.tables import create_tables

metadata = sa.MetaData()

things = sa.Table(
    "things",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("resource", sa.Text, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
)


async def read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


async def answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"set-cookie", b"session=1")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    half = len(body) // 2
    await send({"type": "http.response.body", "body": body[:half], "more_body": True})
    await send({"type": "http.response.body", "body": body[half:]})


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Joins the request's transaction. What comes after a space in the body is only for show."""
    if scope["type"] == "lifespan":
        return
    body = (await read_body(receive)).decode()
    value = body.partition(" ")[0]
    resource = scope["path"].removeprefix("/things/")
    session = scope["fencepost.session"]
    insert = sa.insert(things).values(resource=resource, value=value)
    await asyncio.to_thread(session.execute, insert)
    await answer(send, 201, value.encode())


def make() -> App:
    engine = sa.create_engine(os.environ["API_DATABASE"], pool_size=20)
    create_tables(engine)
    metadata.create_all(engine)
    return FenceMiddleware(app, engine, require_key=True)


async def request(
    app: App, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
) -> HttpAnswer:
    """Call an ASGI application as a server does, and read its answer."""
    target, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(target),
        "raw_path": target.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
        "extensions": {"http.response.trailers": {}},
    }
    unread = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if unread:
            return unread.pop()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *rest = sent
    text = {k.decode("latin-1"): v.decode("latin-1") for k, v in start["headers"]}
    return HttpAnswer(start["status"], text, b"".join(m.get("body", b"") for m in rest))
