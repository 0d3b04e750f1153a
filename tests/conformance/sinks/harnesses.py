"""Our sinks, each wrapped for the conformance suite."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import redis
import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost.errors import FencepostError
from fencepost.fence import FenceToken
from fencepost.sinks import asgi, asgi_store, files, http, manifest, objects, sql, tables
from fencepost.sinks import redis as redis_sink
from fencepost.sinks.asgi import FenceMiddleware
from fencepost.sinks.contract import Applied, Refusal, SinkCall
from fencepost.sinks.files import FileSink
from fencepost.sinks.http import HttpAnswer, HttpSink
from fencepost.sinks.objects import Boto3Store, ObjectSink
from fencepost.sinks.redis import RedisSink, RedisWrite
from fencepost.sinks.sql import SqlSink, apply_once, check_and_advance_fence
from fencepost.stores.sql import create_engine
from fencepost.testing.sinks import SinkUnderTest
from tests.conformance.sinks import api

T = TypeVar("T")


def source_files(*modules: Any) -> Iterable[str]:
    return [inspect.getsourcefile(module) or "" for module in (*modules, SqlUnderTest)]


def per_process(make: Callable[[str, int], T]) -> Callable[[str], T]:
    """Connections must not be shared with another process."""
    cached = functools.lru_cache(maxsize=16)(make)
    return lambda address: cached(address, os.getpid())


@per_process
def engine_of(url: str, _pid: int) -> sa.Engine:
    """An engine as a user of SQLAlchemy makes it: nothing of ours in it."""
    if url.startswith("sqlite"):
        return sa.create_engine(url, connect_args={"timeout": 20})
    return sa.create_engine(url, pool_size=20)


@per_process
def ledger_engine_of(url: str, _pid: int) -> sa.Engine:
    """An engine as the ledger's: commits by itself on PostgreSQL, BEGIN IMMEDIATE on SQLite."""
    return create_engine(url, pool_size=20)


def prepare(url: str) -> None:
    tables.create_tables(engine_of(url))
    api.metadata.create_all(engine_of(url))


def landed_in(engine: sa.Engine, resource: str) -> list[str]:
    query = sa.select(api.things.c.value).where(api.things.c.resource == resource)
    with engine.connect() as connection:
        return list(connection.execute(query.order_by(api.things.c.id)).scalars())


def append(session: Session | sa.Connection, resource: str, value: str) -> str:
    session.execute(sa.insert(api.things).values(resource=resource, value=value))
    return value


@dataclass
class SqlUnderTest(SinkUnderTest):
    """`SqlSink`, which makes its own transactions."""

    url: str
    ledgers: bool = False

    @property
    def engine(self) -> sa.Engine:
        return ledger_engine_of(self.url) if self.ledgers else engine_of(self.url)

    @property
    def sink(self) -> SqlSink:
        return SqlSink(self.engine)

    def advance(self, resource: str, token: FenceToken) -> None:
        self.sink.advance(resource, token)

    def write(self, call: SinkCall, value: str) -> Applied[str]:
        return self.sink.apply(call, lambda session: append(session, call.resource, value))

    def landed(self, resource: str) -> list[str]:
        return landed_in(self.engine, resource)

    def refusals(self, resource: str) -> Sequence[Refusal] | None:
        return self.sink.refusals(resource)

    def code(self) -> Iterable[str]:
        return source_files(sql)


@dataclass
class OwnTransactionsUnderTest(SqlUnderTest):
    """The functions, in a transaction of the caller's."""

    def advance(self, resource: str, token: FenceToken) -> None:
        with self._begin() as connection:
            check_and_advance_fence(connection, token, resource)

    def write(self, call: SinkCall, value: str) -> Applied[str]:
        with Session(self._engine) as session, session.begin():
            return apply_once(session, call, lambda s: append(s, call.resource, value))

    def refusals(self, resource: str) -> Sequence[Refusal] | None:
        return None  # what raises in the caller's transaction can't be recorded in it

    @property
    def _engine(self) -> sa.Engine:
        if self.engine.dialect.name == "postgresql":
            return self.engine.execution_options(isolation_level="READ COMMITTED")
        return self.engine

    def _begin(self) -> Any:
        return self._engine.begin()


@per_process
def redis_of(url: str, _pid: int) -> redis.Redis:
    return redis.Redis.from_url(url)


@dataclass
class RedisUnderTest(SinkUnderTest):
    url: str

    @property
    def sink(self) -> RedisSink:
        return RedisSink(redis_of(self.url))

    def advance(self, resource: str, token: FenceToken) -> None:
        self.sink.advance(resource, token)

    def write(self, call: SinkCall, value: str) -> Applied[str]:
        push = RedisWrite(
            lua="redis.call('RPUSH', KEYS[1], ARGV[1]) return ARGV[1]",
            keys=[f"list:{call.resource}"],
            args=[value],
        )
        return self.sink.apply(call, push)

    def landed(self, resource: str) -> list[str]:
        found: Any = redis_of(self.url).lrange(f"list:{resource}", 0, -1)
        return [value.decode() for value in found]

    def refusals(self, resource: str) -> Sequence[Refusal] | None:
        return self.sink.refusals(resource)

    def code(self) -> Iterable[str]:
        return source_files(redis_sink)


def with_line(value: str) -> Callable[[bytes | None], bytes]:
    return lambda present: (present or b"") + value.encode() + b"\n"


def result_of(receipt: Applied[Any], value: str) -> Applied[str]:
    """The content's receipt, as that of the text which was added to it."""
    return Applied(result=value, replayed=receipt.replayed, epoch=receipt.epoch)


@dataclass
class FilesUnderTest(SinkUnderTest):
    """Texts are the lines of a file."""

    folder: Path

    @property
    def sink(self) -> FileSink:
        return FileSink(self.folder)

    def advance(self, resource: str, token: FenceToken) -> None:
        self.sink.advance(resource, token)

    def write(self, call: SinkCall, value: str) -> Applied[str]:
        receipt = self.sink.apply(call, with_line(value))
        first_size = receipt.result.size
        lines = (self.folder / call.resource).read_bytes()[:first_size].decode().splitlines()
        return result_of(receipt, lines[-1])

    def landed(self, resource: str) -> list[str]:
        path = self.folder / resource
        return path.read_text().splitlines() if path.exists() else []

    def refusals(self, resource: str) -> Sequence[Refusal] | None:
        return self.sink.refusals(resource)

    def code(self) -> Iterable[str]:
        return source_files(files, manifest)


class PlainStore:
    """The three calls with nothing but the standard library."""

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, name: str) -> tuple[bytes, str] | None:
        answer = self._send("GET", name)
        return None if answer.status == 404 else (answer.body, answer.header("etag") or "")

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._send("PUT", name, data, {"If-None-Match": "*"}).status == 200

    def put_if_match(self, name: str, data: bytes, tag: str) -> bool:
        return self._send("PUT", name, data, {"If-Match": tag}).status == 200

    def _send(
        self, method: str, name: str, data: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        url = f"{self._url}/bucket/{quote(name)}"
        return http.urllib_send(timedelta(seconds=20))(method, url, headers or {}, data)


def boto3_client(url: str) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="someone",
        aws_secret_access_key="something",
        config=Config(max_pool_connections=20, s3={"addressing_style": "path"}),
    )


@per_process
def plain_sink(url: str, _pid: int) -> ObjectSink:
    return ObjectSink(PlainStore(url))


@per_process
def boto3_sink(url: str, _pid: int) -> ObjectSink:
    return ObjectSink(Boto3Store(boto3_client(url), "bucket"))


@dataclass
class ObjectsUnderTest(SinkUnderTest):
    """Texts are the lines of an object."""

    url: str

    @property
    def sink(self) -> ObjectSink:
        return plain_sink(self.url)

    def advance(self, resource: str, token: FenceToken) -> None:
        self.sink.advance(resource, token)

    def write(self, call: SinkCall, value: str) -> Applied[str]:
        receipt = self.sink.apply(call, with_line(value))
        stored = PlainStore(self.url).get(receipt.result.name)
        assert stored is not None
        return result_of(receipt, stored[0].decode().splitlines()[-1])

    def landed(self, resource: str) -> list[str]:
        return (self.sink.read(resource) or b"").decode().splitlines()

    def refusals(self, resource: str) -> Sequence[Refusal] | None:
        return self.sink.refusals(resource)

    def code(self) -> Iterable[str]:
        return source_files(objects, manifest)


@dataclass
class Boto3UnderTest(ObjectsUnderTest):
    """To be stopped within boto3 would take hours; the lines of the sink are those of above."""

    @property
    def sink(self) -> ObjectSink:
        return boto3_sink(self.url)

    def code(self) -> Iterable[str]:
        return source_files()


class InOneThread(FenceMiddleware):
    """The middleware without its threads, so that it can be stopped at each line."""

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return work()


@dataclass
class MiddlewareUnderTest(SinkUnderTest):
    """A server's middleware and handler, called in this thread through the client's functions."""

    url: str

    @property
    def app(self) -> FenceMiddleware:
        return InOneThread(api.app, engine_of(self.url))

    @property
    def sink(self) -> HttpSink:
        return HttpSink("http://here", send=self._send)

    def _send(self, method: str, url: str, headers: Any, body: bytes) -> HttpAnswer:
        return asyncio.run(
            api.request(self.app, method, url.removeprefix("http://here"), headers, body)
        )

    def advance(self, resource: str, token: FenceToken) -> None:
        self.sink.advance(resource, token)

    def write(self, call: SinkCall, value: str) -> Applied[str]:
        path = f"/things/{quote(call.resource, safe='')}"
        extra = {} if call.digest is None else {"x-digest": call.digest}
        body = value.encode() if call.digest is None else f"{value} {call.digest}".encode()
        receipt = self.sink.apply(
            call, lambda headers: self._send("POST", path, {**headers, **extra}, body)
        )
        answer = receipt.result
        if answer.status != 201:
            raise FencepostError(f"{answer.status} {answer.body!r}")
        return Applied(result=answer.body.decode(), replayed=receipt.replayed)

    def landed(self, resource: str) -> list[str]:
        return landed_in(engine_of(self.url), resource)

    def refusals(self, resource: str) -> Sequence[Refusal] | None:
        name = asgi_store.scoped("", resource)
        return SqlSink(engine_of(self.url)).refusals(name)

    def code(self) -> Iterable[str]:
        return source_files(asgi, asgi_store)


@dataclass
class ServerUnderTest(MiddlewareUnderTest):
    """The same on a real server, over real connections."""

    address: str = ""

    @property
    def sink(self) -> HttpSink:
        return HttpSink(self.address)

    def _send(self, method: str, url: str, headers: Any, body: bytes) -> HttpAnswer:
        send = http.urllib_send(timedelta(seconds=20))
        return send(method, self.address + url, headers, body)

    def code(self) -> Iterable[str]:
        return source_files(http)
