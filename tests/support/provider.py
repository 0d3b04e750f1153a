"""A payment provider: an HTTP server process of its own, with a ledger of its own.

It has four modes, one for each thing that a provider may be able to do; the mode is the first
part of the path. Whatever it is asked, its ledger has a row for each payment that it has made,
and those rows are what tests count.

    POST /keyed/payments      dedupes by the header Idempotency-Key, atomically
    POST /fenced/payments     checks the header Fencing-Token and dedupes by key, atomically
    POST /fenced/marks        raises the mark of an execution
    POST /queryable/payments  pays whenever it is asked, and can be asked: GET ...?reference=KEY
    POST /blind/payments      pays whenever it is asked, and tells nothing afterwards
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).parents[2]

SCHEMA = """
CREATE TABLE IF NOT EXISTS payments (
    id INTEGER PRIMARY KEY, mode TEXT NOT NULL, reference TEXT NOT NULL, key TEXT NOT NULL,
    cents INTEGER NOT NULL, epoch INTEGER, at TEXT NOT NULL DEFAULT (strftime('%H:%M:%f')));
CREATE TABLE IF NOT EXISTS keys (
    mode TEXT NOT NULL, key TEXT NOT NULL, request TEXT NOT NULL, payment INTEGER NOT NULL,
    PRIMARY KEY (mode, key));
CREATE TABLE IF NOT EXISTS marks (execution TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY, mode TEXT NOT NULL, what TEXT NOT NULL, key TEXT NOT NULL,
    epoch INTEGER, status INTEGER NOT NULL);
"""


class Refused(Exception):
    """The provider says no."""

    def __init__(self, status: HTTPStatus, code: str, **facts: Any) -> None:
        super().__init__(code)
        self.status = status
        self.answer = {"error": code, **facts}


class Ledger:
    """The provider's database; every method is one atomic step."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._begin() as db:
            db.executescript(SCHEMA)

    @contextlib.contextmanager
    def _begin(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            yield db
            if db.in_transaction:
                db.execute("COMMIT")
        finally:
            db.close()

    def pay(self, mode: str, key: str, token: tuple[str, int] | None, request: Any) -> int:
        """Pay, as far as the mode allows; returns the payment's number."""
        with self._begin() as db:
            if mode == "fenced":
                self._check_mark(db, token)
            if mode in ("fenced", "keyed"):
                known = self._known(db, mode, key, request)
                if known is not None:
                    return known
            paid = db.execute(
                "INSERT INTO payments (mode, reference, key, cents, epoch) VALUES (?, ?, ?, ?, ?)",
                (mode, request["reference"], key, request["cents"], token and token[1]),
            )
            payment = int(paid.lastrowid or 0)
            if mode in ("fenced", "keyed"):
                text = json.dumps(request, sort_keys=True)
                db.execute("INSERT INTO keys VALUES (?, ?, ?, ?)", (mode, key, text, payment))
            return payment

    def _known(self, db: sqlite3.Connection, mode: str, key: str, request: Any) -> int | None:
        query = "SELECT request, payment FROM keys WHERE mode = ? AND key = ?"
        row = db.execute(query, (mode, key)).fetchone()
        if row is None:
            return None
        if json.loads(row[0]) != request:
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "key-reused")
        return int(row[1])

    def raise_mark(self, token: tuple[str, int] | None) -> None:
        """Raise the mark of an execution, and do nothing else."""
        with self._begin() as db:
            self._check_mark(db, token)

    def _check_mark(self, db: sqlite3.Connection, token: tuple[str, int] | None) -> None:
        if token is None:
            raise Refused(HTTPStatus.BAD_REQUEST, "no-token")
        execution, epoch = token
        query = "SELECT epoch FROM marks WHERE execution = ?"
        row = db.execute(query, (execution,)).fetchone()
        if row is not None and row[0] > epoch:
            raise Refused(HTTPStatus.PRECONDITION_FAILED, "stale-epoch", current=row[0])
        db.execute(
            "INSERT INTO marks VALUES (?, ?) ON CONFLICT (execution) DO UPDATE SET epoch = ?",
            (execution, epoch, epoch),
        )

    def find(self, mode: str, key: str) -> list[int]:
        """The payments that were made under a key."""
        with self._begin() as db:
            query = "SELECT id FROM payments WHERE mode = ? AND key = ?"
            return [row[0] for row in db.execute(query, (mode, key))]

    def note(self, mode: str, what: str, key: str, epoch: int | None, status: int) -> None:
        """Keep what was asked, and how it was answered."""
        with self._begin() as db:
            db.execute(
                "INSERT INTO requests (mode, what, key, epoch, status) VALUES (?, ?, ?, ?, ?)",
                (mode, what, key, epoch, status),
            )


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    ledger: Ledger

    def do_POST(self) -> None:
        mode, what = urlsplit(self.path).path.strip("/").split("/")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        key, token = self.headers.get("Idempotency-Key", ""), self._token()
        try:
            if what == "marks":
                self.ledger.raise_mark(token)
                answer: Any = {}
            else:
                answer = {"payment": self.ledger.pay(mode, key, token, body)}
            status = HTTPStatus.OK
        except Refused as refused:
            status, answer = refused.status, refused.answer
        self.ledger.note(mode, what, key, token and token[1], status)
        self._answer(status, answer)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        mode, _ = parts.path.strip("/").split("/")
        if mode != "queryable":
            self._answer(HTTPStatus.NOT_FOUND, {"error": "ask-somebody-else"})
            return
        (key,) = parse_qs(parts.query)["reference"]
        payments = self.ledger.find(mode, key)
        self.ledger.note(mode, "query", key, None, HTTPStatus.OK)
        self._answer(HTTPStatus.OK, {"payments": payments})

    def _token(self) -> tuple[str, int] | None:
        header = self.headers.get("Fencing-Token")
        if header is None:
            return None
        execution, epoch = header.rsplit(";", 1)
        return execution, int(epoch)

    def _answer(self, status: HTTPStatus, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing: the ledger has it all."""


class Provider:
    """A running provider, and what its ledger says.

    Args:
        folder: Where the ledger is.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "provider.sqlite3"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.provider", str(self._path)],
            # It ends when this closes: with us, however we end.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the provider did not start"

    def payments(self, reference: str) -> int:
        """How often it has paid for a reference."""
        query = "SELECT count(*) FROM payments WHERE reference = ?"
        return int(self._ask(query, reference)[0][0])

    def numbers(self, reference: str) -> list[int]:
        """The payments for a reference."""
        query = "SELECT id FROM payments WHERE reference = ? ORDER BY id"
        return [row[0] for row in self._ask(query, reference)]

    def requests(self, key: str, what: str = "payments") -> list[tuple[int | None, int]]:
        """(epoch, HTTP status) of what it was asked under a key, in order."""
        query = "SELECT epoch, status FROM requests WHERE key = ? AND what = ? ORDER BY id"
        return [(row[0], row[1]) for row in self._ask(query, key, what)]

    def mark(self, execution: str) -> int | None:
        """The highest epoch of an execution that it has seen."""
        rows = self._ask("SELECT epoch FROM marks WHERE execution = ?", execution)
        return int(rows[0][0]) if rows else None

    def _ask(self, query: str, *parameters: Any) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=30)) as db:
            return db.execute(query, parameters).fetchall()

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate(timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ProviderError(Exception):
    """It answered, and not with what was asked for.

    Attributes:
        status: HTTP's.
        answer: The body.
    """

    def __init__(self, status: int, answer: Any) -> None:
        super().__init__(f"{status}: {answer}")
        self.status = status
        self.answer = answer


def ask(
    url: str,
    method: str,
    path: str,
    *,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout: float,
) -> Any:
    """One HTTP exchange with a provider.

    Args:
        url: Its address.
        method: HTTP's.
        path: With the query.
        body: Sent as JSON.
        headers: Further ones.
        timeout: Seconds.

    Raises:
        ProviderError: It said no.
        OSError: It didn't answer; perhaps it has done what was asked.
    """
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    try:
        data = json.dumps(body).encode() if body is not None else None
        connection.request(method, path, body=data, headers=dict(headers or {}))
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if response.status != HTTPStatus.OK:
        raise ProviderError(response.status, answer)
    return answer


def main() -> None:
    """Serve until standard input ends; print the address first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ledger", type=Path)
    Handler.ledger = Ledger(parser.parse_args().ledger)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
