"""A server with S3's conditional PUT and nothing else of S3: GET, PUT, `If-None-Match`, `If-Match`.

Each request is one atomic step, as S3 promises. `moto` is no substitute where many write at once,
because it takes no lock between its check and its write; `test_object_stores.py` compares the two.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote


@dataclass
class Objects:
    """What is stored, by path.

    Attributes:
        ignores: Conditions that this store takes no notice of, as some do.
    """

    stored: dict[str, bytes] = field(default_factory=dict)
    ignores: frozenset[str] = frozenset()
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, path: str, data: bytes, conditions: dict[str, str | None]) -> tuple[int, str]:
        with self.lock:
            present = self.stored.get(path)
            heeded = {k: v for k, v in conditions.items() if k not in self.ignores}
            if heeded.get("If-None-Match") == "*" and present is not None:
                return 412, "PreconditionFailed"
            if heeded.get("If-Match") is not None:
                if present is None:
                    return 404, "NoSuchKey"
                if heeded["If-Match"] != tag_of(present):
                    return 412, "PreconditionFailed"
            self.stored[path] = data
            return 200, tag_of(data)

    def get(self, path: str) -> bytes | None:
        with self.lock:
            return self.stored.get(path)


def tag_of(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: ClassVar[Objects]

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        conditions = {name: self.headers[name] for name in ("If-None-Match", "If-Match")}
        status, said = self.objects.put(self._path, data, conditions)
        if status == 200:
            self._answer(200, b"", ETag=said)
        else:
            self._error(status, said)

    def do_GET(self) -> None:
        data = self.objects.get(self._path)
        if data is None:
            self._error(404, "NoSuchKey")
        else:
            self._answer(200, data, ETag=tag_of(data))

    @property
    def _path(self) -> str:
        return unquote(self.path.partition("?")[0])

    def _error(self, status: int, code: str) -> None:
        xml = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'
        self._answer(status, xml.encode(), **{"Content-Type": "application/xml"})

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serve(objects: Objects | None = None) -> Iterator[str]:
    """Run the server in a thread; gives its URL."""
    handler = type("Bound", (Handler,), {"objects": objects or Objects()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
