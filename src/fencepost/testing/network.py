"""Small TCP proxies between a worker and the servers, so that a test can cut it off.

They run in the test's own process, in one thread. Nothing is simulated: the bytes of a worker
that is cut off silently wait in here and in the kernel, as they do behind a lost network.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")

PIECE = 65_536
CALL_SECONDS = 10.0


class Cut(StrEnum):
    """How a connection is lost."""

    SILENT = "silent"
    """Nothing comes through, and nobody is told: a lost network. What was sent comes late."""
    RESET = "reset"
    """Connections break at once, and new ones are refused: a server that is gone."""


class Link:
    """A way from one worker to one server.

    Attributes:
        name: The service's, such as `redis` or `database`.
        port: Where it listens on 127.0.0.1.
        cut_off: How it is cut, or None while it lets everything through.
    """

    def __init__(self, network: Network, name: str, host: str, port: int) -> None:
        self.name = name
        self.port = 0
        self.cut_off: Cut | None = None
        self._network = network
        self._target = (host, port)
        self._through = asyncio.Event()
        self._through.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    def cut(self, how: Cut = Cut.SILENT) -> None:
        """Let nothing through until `heal`."""

        async def act() -> None:
            self.cut_off = how
            if how is Cut.RESET:
                self._through.set()
                self._abort()
            else:
                self._through.clear()

        self._network.call(act())

    def heal(self) -> None:
        """Let everything through, what waits included."""

        async def act() -> None:
            self.cut_off = None
            self._through.set()

        self._network.call(act())

    async def open(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Break all connections, and listen no longer."""
        if self._server is not None:
            self._server.close()
        self._abort()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        server: asyncio.StreamWriter | None = None
        try:
            await self._through.wait()
            # Also when it has been cut while this one waited.
            if self.cut_off is Cut.RESET:
                return
            answers, server = await asyncio.open_connection(*self._target)
            self._writers.add(server)
            await asyncio.gather(self._pump(reader, server), self._pump(answers, writer))
        except OSError:
            pass  # one side is gone, so the other one goes too
        finally:
            for one in (writer, server):
                if one is not None:
                    one.transport.abort()
                    self._writers.discard(one)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(PIECE):
            await self._through.wait()
            writer.write(piece)
            await writer.drain()
        # The end of a stream is news as well: it doesn't come through a cut.
        await self._through.wait()
        with contextlib.suppress(OSError):
            writer.write_eof()


class Network:
    """All links of a fleet, and the thread that serves them."""

    def __init__(self) -> None:
        self._links: list[Link] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def link(self, name: str, host: str, port: int) -> Link:
        """A new way to a server."""
        made = Link(self, name, host, port)
        self.call(made.open())
        self._links.append(made)
        return made

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the thread do something, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    def close(self) -> None:
        """Break all connections and end the thread."""
        if self._loop.is_closed():
            return
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()

    async def _close(self) -> None:
        for link in self._links:
            await link.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
