"""A TCP proxy that reads along what clients send to a PostgreSQL server."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import sqlalchemy as sa

_STARTUP_ONLY = {80877102, 80877103, 80877104}  # cancel, SSL and GSS requests
_CHUNK = 65_536


@dataclass(frozen=True)
class Message:
    """A message from a client.

    Attributes:
        connection: Number of the client's connection, from 0.
        kind: The protocol's letter: `Q` for a simple query, `P` parse, `B` bind, `S` sync, ...
        body: What follows the length.
    """

    connection: int
    kind: str
    body: bytes


class FrontendReader:
    """Cuts a client's byte stream into messages (PostgreSQL's protocol, version 3)."""

    def __init__(self, emit: Callable[[str, bytes], None]) -> None:
        self._emit = emit
        self._buffer = b""
        self._started = False

    def feed(self, data: bytes) -> None:
        """Take in what the client has sent."""
        self._buffer += data
        while self._next():
            pass

    def _next(self) -> bool:
        head = 1 if self._started else 0
        if len(self._buffer) < head + 4:
            return False
        (length,) = struct.unpack_from("!I", self._buffer, head)
        if len(self._buffer) < head + length:
            return False
        kind, body = self._buffer[:head].decode(), self._buffer[head + 4 : head + length]
        self._buffer = self._buffer[head + length :]
        if self._started:
            self._emit(kind, body)
        else:
            (code,) = struct.unpack_from("!I", body)
            self._started = code not in _STARTUP_ONLY
        return True


class WireTap:
    """Listens on a port of 127.0.0.1 and passes everything on to a server.

    Args:
        target: SQLAlchemy URL of a PostgreSQL database.
    """

    def __init__(self, target: str) -> None:
        self._target = sa.make_url(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._messages: list[Message] = []
        self._connections = 0
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        """The same database, through the tap."""
        port = self._listener.getsockname()[1]
        return self._target.set(port=port).render_as_string(hide_password=False)

    def messages(self) -> list[Message]:
        """All that clients have sent after they had logged in."""
        with self._lock:
            return list(self._messages)

    def round_trips(self) -> int:
        """How often a client has sent something and had to wait for the answer."""
        return sum(message.kind in "QSF" for message in self.messages())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for open_socket in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection((self._target.host, self._target.port))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [client, server]
            number, self._connections = self._connections, self._connections + 1

            def emit(kind: str, body: bytes, number: int = number) -> None:
                with self._lock:
                    self._messages.append(Message(number, kind, body))

            # Noted before it is passed on: whoever has the answer finds the question here.
            for source, sink, look in (
                (client, server, FrontendReader(emit).feed),
                (server, client, None),
            ):
                threading.Thread(target=_pump, args=(source, sink, look), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, look: Callable[[bytes], None] | None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            if look is not None:
                look(data)
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
