"""A proxy between each worker and each server, which can be cut, silenced, or lose an answer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Self

CHUNK = 65_536
READY = b"Z\x00\x00\x00\x05"
"""The head of PostgreSQL's `ReadyForQuery`: what was asked has been done."""


class State(StrEnum):
    """What becomes of what is sent through a link."""

    OPEN = "open"
    CUT = "cut"
    """Connections are reset, and new ones too."""
    SILENT = "silent"
    """Nothing arrives, in either direction, and nobody is told."""


class Link:
    """One way from a worker to a server.

    Attributes:
        name: `w1-redis`, say.
        port: Where the worker connects to.
        lost: Answers that were lost here.
    """

    def __init__(self, name: str, target: int, port: int) -> None:
        self.name, self.target, self.port = name, target, port
        self.state = State.OPEN
        self.to_lose = 0
        self.lost = 0
        self.pairs: set[Pair] = set()


class Pair:
    """A connection of a client, and the one to the server that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._ends = (client, server)
        self._in_transaction = False
        self.losing = False
        self.muted = False

    def commits(self, sent: bytes) -> bool:
        """Whether what a client sends to PostgreSQL makes something last."""
        if b"COMMIT" in sent:
            self._in_transaction = False
            return True
        if b"BEGIN" in sent or b"ROLLBACK" in sent:
            self._in_transaction = b"BEGIN" in sent
        writes = b"INSERT INTO fencepost_checkpoints" in sent
        return writes and not self._in_transaction

    def reset(self) -> None:
        """Close both connections at once."""
        for end in self._ends:
            end.transport.abort()


class Network:
    """All links of a run, carried by one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self.links: dict[str, Link] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def link(self, name: str, target: int) -> Link:
        """Open a port that leads to one of this machine's."""

        async def serve() -> Link:
            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            self._servers.append(server)
            return Link(name, target, server.sockets[0].getsockname()[1])

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _carry(self.links[name], reader, writer)

        made = asyncio.run_coroutine_threadsafe(serve(), self._loop).result(10)
        self.links[name] = made
        return made

    def set(self, name: str, state: State) -> None:
        """Cut, silence or open a link. Whoever was connected loses the connection in the end."""

        def change() -> None:
            link = self.links[name]
            link.state = state
            for pair in list(link.pairs):
                if state is State.CUT or (state is State.OPEN and pair.muted):
                    pair.reset()

        self._call(change)

    def lose(self, name: str, answers: int) -> int:
        """Lose the answers to the next commits; returns how many were lost here so far."""

        def change() -> None:
            self.links[name].to_lose = answers

        self._call(change)
        return self.links[name].lost

    def heal(self) -> None:
        """Open everything, and lose nothing more."""
        for name in self.links:
            self.lose(name, 0)
            self.set(name, State.OPEN)

    def _call(self, change: Callable[[], None]) -> None:
        async def run() -> None:
            change()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for link in self.links.values():
            for pair in list(link.pairs):
                pair.reset()
        others = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        # Their connections are gone: they end by themselves, unless they connect right now.
        if others:
            await asyncio.wait(others, timeout=2)


async def _carry(link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if link.state is State.CUT:
        writer.transport.abort()
        return
    try:
        behind, ahead = await asyncio.open_connection("127.0.0.1", link.target)
    except OSError:
        writer.transport.abort()
        return
    pair = Pair(writer, ahead)
    pair.muted = link.state is State.SILENT
    link.pairs.add(pair)
    try:
        await asyncio.gather(
            _pump(link, pair, reader, ahead, _asked), _pump(link, pair, behind, writer, _answered)
        )
    finally:
        link.pairs.discard(pair)
        pair.reset()


async def _pump(
    link: Link,
    pair: Pair,
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    passes: Callable[[Link, Pair, bytes], bool],
) -> None:
    with contextlib.suppress(OSError, asyncio.CancelledError):
        while data := await source.read(CHUNK):
            if link.state is State.SILENT or pair.muted:
                # What is swallowed leaves a gap: this connection will never be whole again.
                pair.muted = True
            elif passes(link, pair, data):
                sink.write(data)
                await sink.drain()
    pair.reset()


def _asked(link: Link, pair: Pair, data: bytes) -> bool:
    if pair.commits(data) and link.to_lose > 0 and not pair.losing:
        link.to_lose -= 1
        pair.losing = True
    return True


def _answered(link: Link, pair: Pair, data: bytes) -> bool:
    if not pair.losing:
        return True
    if data[-6:-1] == READY:
        link.lost += 1
        pair.reset()
    return False
