"""The bank: the tests' payment provider, in a process of its own, with deadlines for requests.

`python -m tests.chaos.bank LEDGER [--unfenced]`
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fencepost import EffectCall, FenceToken, StaleLeaseFenceError
from fencepost.errors import LeaseDeadlineError
from tests.support.provider import Handler, Ledger, ProviderError, ask

ADDRESS = "CHAOS_BANK"
NOT_AFTER = "Not-After"
ROOT = Path(__file__).parents[2]


class Careless(Ledger):
    """A bank that looks at no fence, and at no key that came with one."""

    def _check_mark(self, db: sqlite3.Connection, token: tuple[str, int] | None) -> None:
        """Let everybody through."""

    def _known(self, db: sqlite3.Connection, mode: str, key: str, request: Any) -> int | None:
        if mode == "keyed":
            return super()._known(db, mode, key, request)
        db.execute("DELETE FROM keys WHERE mode = ? AND key = ?", (mode, key))
        return None


class Counter(Handler):
    """One request; refused if it comes after its caller's deadline.

    The caller may have been frozen after it had last looked at its clock. All processes here
    share `time.monotonic`; a bank elsewhere would be sent a time to live.
    """

    def do_POST(self) -> None:  # noqa: N802 - the name is http.server's
        deadline = self.headers.get(NOT_AFTER)
        if deadline is not None and time.monotonic() >= float(deadline):
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(HTTPStatus.GONE, {"error": "too-late"})
            return
        super().do_POST()


class Server(ThreadingHTTPServer):
    """Says nothing of callers that are gone when they are answered."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Bank:
    """A running bank, and what its ledger says.

    Args:
        folder: Where the ledger is.
        fenced: Whether it checks fences and keys.
    """

    def __init__(self, folder: Path, *, fenced: bool = True) -> None:
        self.path = folder / "bank.sqlite3"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.chaos.bank", str(self.path)),
                *([] if fenced else ["--unfenced"]),
            ],
            # It ends when this closes: with us, however we end.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        assert port, "the bank did not start"
        self.port = int(port)

    def rows(self, query: str) -> list[Any]:
        """Ask its ledger."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=30)) as db:
            return db.execute(query).fetchall()

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate(timeout=10)


class BankFence:
    """Raises the bank's mark."""

    def advance(self, resource: str, token: FenceToken) -> None:
        """See `FencedSink.advance`."""
        with _translated(token):
            ask(
                os.environ[ADDRESS],
                "POST",
                "/fenced/marks",
                body={"resource": resource},
                headers=_header(token),
                timeout=2.0,
            )


def pay(mode: str, call: EffectCall, *, reference: str) -> int:
    """Have the bank do something; returns the number under which it has recorded that."""
    headers = {"Idempotency-Key": call.key}
    if math.isfinite(call.deadline):
        headers[NOT_AFTER] = repr(call.deadline)
    if mode == "fenced":
        headers |= _header(call.token)
    with _translated(call.token):
        answer = ask(
            os.environ[ADDRESS],
            "POST",
            f"/{mode}/payments",
            body={"reference": reference, "cents": 1},
            headers=headers,
            timeout=min(2.0, max(0.1, call.time_left.total_seconds())),
        )
    return int(answer["payment"])


def paid(mode: str, key: str) -> list[int]:
    """What was done under a key."""
    answer = ask(os.environ[ADDRESS], "GET", f"/{mode}/payments?reference={key}", timeout=2.0)
    return list(answer["payments"])


def _header(token: FenceToken) -> dict[str, str]:
    return {"Fencing-Token": f"{token.execution_id};{token.epoch}"}


@contextlib.contextmanager
def _translated(token: FenceToken) -> Any:
    facts: dict[str, Any] = {"held": token.epoch, "step_key": token.step_key}
    try:
        yield
    except ProviderError as problem:
        if problem.status == HTTPStatus.GONE:
            raise LeaseDeadlineError(token.execution_id, current=token.epoch, **facts) from problem
        if problem.status == HTTPStatus.PRECONDITION_FAILED:
            current = problem.answer["current"]
            raise StaleLeaseFenceError(token.execution_id, current=current, **facts) from problem
        raise RuntimeError(f"the bank said {json.dumps(problem.answer)}") from problem


def main() -> None:
    """Serve until standard input ends; print the port first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--unfenced", action="store_true")
    given = parser.parse_args()
    Counter.ledger = (Careless if given.unfenced else Ledger)(given.ledger)
    server = Server(("127.0.0.1", 0), Counter)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
