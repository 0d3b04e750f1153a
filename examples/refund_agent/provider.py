"""A payment provider, a process of its own: `python -m examples.refund_agent.provider --mode M`.

| mode | what it offers |
|---|---|
| `dedupes` | `Idempotency-Key`: same key, first result; another body, 422; still at it, 409 |
| `fences` | `Fencing-Token`, checked with the key in one transaction; `POST /fence`; stale, 412 |
| `queryable` | neither, but `GET /refunds?reference=...` tells what was booked |
| `blind` | none of these |

`POST /refunds` and `POST /charges` take `{"order_id", "amount_cents", "reference"}`. It reads one
request from a connection, within `--read-timeout`, or drops it: what arrives later is not booked.

`GET /ledger` (the auditor's view) and `POST /faults` (see `provider_faults`) are for those who
watch; no shop calls them. It listens on 127.0.0.1 only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from examples.refund_agent.provider_faults import Fault, Plan, Plans
from examples.refund_agent.provider_ledger import Answer, Kind, Ledger, Transfer, problem

READ_TIMEOUT = 2.0
"""Seconds from the connection to the end of the request."""

KINDS: dict[str, Kind] = {"/charges": "charge", "/refunds": "refund"}


class Mode(StrEnum):
    """What the provider offers."""

    DEDUPES = "dedupes"
    FENCES = "fences"
    QUERYABLE = "queryable"
    BLIND = "blind"


class BadRequest(Exception):
    """The request can't be understood; nothing was booked."""


class Provider:
    """Moves money as its mode says, with the faults that were armed.

    Args:
        mode: What it offers.
        ledger: Its books.
    """

    def __init__(self, mode: Mode, ledger: Ledger) -> None:
        self.mode = mode
        self.ledger = ledger
        self.faults = Plans()

    def transfer(self, transfer: Transfer, digest: str) -> Answer | None:
        """Serve a request that moves money; None to close the connection without an answer."""
        faults = self.faults.take(transfer.order_id)
        if Fault.IN_PROGRESS in faults:
            return problem(409, "in-progress", "a request with this key is in progress")
        if Fault.ERROR_BEFORE in faults:
            return problem(503, "unavailable", "try again")
        if Fault.DECLINE in faults:
            return problem(402, "declined", "the customer's bank declines")
        answer = self._book(transfer, digest, faults.get(Fault.DELAY))
        if answer.status == 201 and not answer.replayed:
            if Fault.DELAY_ANSWER in faults:
                time.sleep(faults[Fault.DELAY_ANSWER].seconds)
            if Fault.LOSE_ANSWER in faults:
                return None
            if Fault.ERROR_AFTER in faults:
                return problem(500, "internal", "something went wrong")
        return answer

    def _book(self, transfer: Transfer, digest: str, delay: Plan | None) -> Answer:
        deduped = self.mode is Mode.DEDUPES and transfer.key is not None
        if deduped:
            known = self.ledger.claim_key(transfer, digest)
            if known is not None:
                return known
        try:
            if delay is not None:
                time.sleep(delay.seconds)
            if self.mode is Mode.FENCES:
                return self.ledger.book_fenced(transfer, digest)
            return self.ledger.book_claimed(transfer) if deduped else self.ledger.book(transfer)
        except BaseException:
            if deduped:
                self.ledger.release_key(transfer.key or "")
            raise

    def raise_fence(self, body: dict[str, Any]) -> Answer:
        """Serve `POST /fence`: `{"resource", "execution", "epoch"}`."""
        if self.mode is not Mode.FENCES:
            return problem(404, "not-offered", f"a {self.mode} provider knows no fences")
        return self.ledger.raise_fence(
            _text(body, "resource"), _text(body, "execution"), _whole(body, "epoch")
        )

    def ask(self, kind: Kind, reference: str) -> Answer:
        """Serve `GET /refunds?reference=...`."""
        if self.mode is not Mode.QUERYABLE:
            return problem(404, "not-offered", f"a {self.mode} provider can't be asked")
        return Answer(200, {"found": self.ledger.with_reference(reference, kind)})

    def arm(self, body: dict[str, Any]) -> Answer:
        """Serve `POST /faults`: `{"order_id", "fault", "times", "seconds"}`."""
        seconds = float(body.get("seconds", 0))
        plan = Plan(Fault(_text(body, "fault")), int(body.get("times", 1)), seconds)
        self.faults.add(_text(body, "order_id"), plan)
        return Answer(200, {})


class Handler(BaseHTTPRequestHandler):
    """One request of one connection."""

    # Both are ours: the socket's time-out for each read, and the deadline for the whole request.
    timeout = READ_TIMEOUT
    provider: Provider

    def setup(self) -> None:
        """Note when the connection was made."""
        self._deadline = time.monotonic() + self.timeout
        super().setup()

    def do_GET(self) -> None:
        """Ask, audit, or see whether it is up."""
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/health":
            self._send(Answer(200, {"mode": self.provider.mode}))
        elif url.path == "/ledger":
            audit = self.provider.ledger.audit(query.get("order_id"))
            self._send(Answer(200, {"mode": self.provider.mode, **audit}))
        elif url.path in KINDS and "reference" in query:
            self._send(self.provider.ask(KINDS[url.path], query["reference"]))
        else:
            self._send(problem(404, "not-found", f"no such thing: {self.path}"))

    def do_POST(self) -> None:
        """Move money, raise a fence, or arm a fault."""
        path = urlsplit(self.path).path
        try:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if time.monotonic() > self._deadline:
                self._send(problem(408, "too-late", "the request came too late: nothing is booked"))
                return
            body = _object(raw)
            serve: dict[str, Callable[[], Answer | None]] = {
                "/fence": lambda: self.provider.raise_fence(body),
                "/faults": lambda: self.provider.arm(body),
                "/charges": lambda: self._transfer("charge", body, raw),
                "/refunds": lambda: self._transfer("refund", body, raw),
            }
            if path not in serve:
                raise BadRequest(f"no such thing: {path}")
            self._send(serve[path]())
        except (BadRequest, ValueError) as bad:
            self._send(problem(400, "bad-request", str(bad)))

    def _transfer(self, kind: Kind, body: dict[str, Any], raw: bytes) -> Answer | None:
        amount = _whole(body, "amount_cents")
        if amount <= 0:
            raise BadRequest("amount_cents must be positive")
        execution, epoch = _token(self.headers.get("Fencing-Token"))
        reference = body.get("reference")
        transfer = Transfer(
            kind=kind,
            order_id=_text(body, "order_id"),
            amount_cents=amount,
            reference=None if reference is None else str(reference),
            key=self.headers.get("Idempotency-Key"),
            execution=execution,
            epoch=epoch,
        )
        return self.provider.transfer(transfer, hashlib.sha256(kind.encode() + raw).hexdigest())

    def _send(self, answer: Answer | None) -> None:
        self.close_connection = True
        if answer is None:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        data = json.dumps(answer.body).encode()
        # The caller may have given up, or be frozen: what is booked is booked.
        with suppress(OSError):
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if answer.replayed:
                self.send_header("Idempotent-Replayed", "true")
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """One line for each request, on standard error."""
        sys.stderr.write(f"{self.log_date_time_string()} {format % args}\n")


class Server(ThreadingHTTPServer):
    """A thread for each connection; none of them keeps the process alive."""

    daemon_threads = True
    request_queue_size = 64


def serve(mode: Mode, ledger: Path, *, port: int = 0, read_timeout: float = READ_TIMEOUT) -> Server:
    """Make a server; the caller runs `serve_forever` and, at the end, `server_close`.

    Args:
        mode: What it offers.
        ledger: The database file of its books.
        port: 0 for a free one.
        read_timeout: Seconds from a connection to the end of its request.
    """
    attributes = {"provider": Provider(mode, Ledger(ledger)), "timeout": read_timeout}
    return Server(("127.0.0.1", port), type("BoundHandler", (Handler,), attributes))


def _object(raw: bytes) -> dict[str, Any]:
    body = json.loads(raw or b"{}")
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name} must be a text")
    return value


def _whole(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadRequest(f"{name} must be a whole number")
    return value


def _token(header: str | None) -> tuple[str | None, int | None]:
    """`execution=<id>;epoch=<n>`."""
    if header is None:
        return None, None
    parts = dict(part.strip().split("=", 1) for part in header.split(";"))
    return parts["execution"], int(parts["epoch"])


def main() -> None:
    """Serve until the end of standard input, so that no provider outlives who started it."""
    parser = argparse.ArgumentParser(description="a payment provider, for demonstrations")
    parser.add_argument("--mode", type=Mode, choices=list(Mode), required=True)
    parser.add_argument("--ledger", type=Path, required=True, help="file of its SQLite database")
    parser.add_argument("--port", type=int, default=0, help="by default a free one")
    parser.add_argument("--read-timeout", type=float, default=READ_TIMEOUT, help="seconds")
    given = parser.parse_args()
    server = serve(given.mode, given.ledger, port=given.port, read_timeout=given.read_timeout)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    with suppress(KeyboardInterrupt):
        sys.stdin.read()
    server.server_close()


if __name__ == "__main__":
    main()
