"""A link lets bytes through, holds them, and breaks."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from fencepost.testing.network import Cut, Link, Network

TIMEOUT = 20.0
SILENCE = 0.3


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while received := self.request.recv(1024):
            self.request.sendall(received.upper())
        self.request.sendall(b"bye")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@pytest.fixture
def link() -> Iterator[Link]:
    network = Network()
    with Server(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, port = server.server_address[:2]
        yield network.link("echo", str(host), int(port))
        server.shutdown()
    network.close()
    network.close()


def connected(link: Link) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), timeout=TIMEOUT)


def said(client: socket.socket, word: bytes) -> bytes:
    client.sendall(word)
    return client.recv(1024)


def test_bytes_and_the_end_of_a_stream_go_through(link: Link) -> None:
    with connected(link) as client:
        assert said(client, b"hello") == b"HELLO"
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1024) == b"bye"
        assert client.recv(1024) == b""


def test_a_silent_cut_holds_what_is_sent_until_it_is_healed(link: Link) -> None:
    with connected(link) as before:
        assert said(before, b"one") == b"ONE"
        link.cut()
        with connected(link) as during:
            for client in (before, during):
                client.settimeout(SILENCE)
                client.sendall(b"two")
                with pytest.raises(TimeoutError):
                    client.recv(1024)
            assert link.cut_off is Cut.SILENT
            link.heal()
            for client in (before, during):
                client.settimeout(TIMEOUT)
                assert client.recv(1024) == b"TWO"
    assert link.cut_off is None


def test_a_reset_breaks_connections_and_refuses_new_ones(link: Link) -> None:
    with connected(link) as before:
        assert said(before, b"one") == b"ONE"
        link.cut(Cut.RESET)
        assert lost(before)
    with connected(link) as during:
        assert lost(during)
    link.heal()
    with connected(link) as after:
        assert said(after, b"three") == b"THREE"


def test_a_silent_cut_can_become_a_reset(link: Link) -> None:
    link.cut(Cut.SILENT)
    with connected(link) as client:
        client.sendall(b"one")
        link.cut(Cut.RESET)
        assert lost(client)


def lost(client: socket.socket) -> bool:
    try:
        return client.recv(1024) == b""
    except ConnectionResetError:
        return True


def test_a_server_that_is_gone_is_no_server(link: Link) -> None:
    link._target = ("127.0.0.1", 1)
    with connected(link) as client:
        assert lost(client)
