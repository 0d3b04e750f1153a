"""Four providers, each a process with a ledger of its own, and what a test asks them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from examples.refund_agent import payments
from examples.refund_agent.payments import Payments
from examples.refund_agent.provider import Mode
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[3]
ENVIRONMENT = "RACES_BANKS"
"""Names the providers' URLs in a worker's environment, as JSON by mode."""

AWAY = "http://127.0.0.1:1"
"""Where nobody answers."""

READ_TIMEOUT = 1.0
"""Seconds until a provider drops a connection whose request has not come."""

Kind = Literal["charge", "refund"]


@dataclass(frozen=True)
class Bank(Payments):
    """A client of one provider, with the time-out of somebody who waits at a till.

    Attributes:
        timeout: Seconds to wait for an answer.
    """

    timeout: float = 5.0

    def _connection(self) -> HTTPConnection:
        where = urlsplit(self.url)
        return HTTPConnection(where.hostname or "", where.port, timeout=self.timeout)

    def move(
        self,
        kind: Kind,
        order: str,
        cents: int,
        *,
        key: str | None = None,
        fence: tuple[str, int] | None = None,
        reference: str | None = None,
    ) -> str:
        """Charge or refund; returns the transfer's id. Raises as `Payments.refund` does."""
        headers = {} if key is None else {"Idempotency-Key": key}
        if fence is not None:
            headers["Fencing-Token"] = f"execution={fence[0]};epoch={fence[1]}"
        body = {"order_id": order, "amount_cents": cents, "reference": reference}
        connection = self._connection()
        try:
            answer = payments._exchange(connection, "POST", f"/{kind}s", body, headers)
        finally:
            connection.close()
        return str(answer["id"])

    def look_up(self, kind: Kind, reference: str) -> str | None:
        """The id of what was booked under a reference, at a provider that can be asked."""
        found = self._call("GET", f"/{kind}s?reference={quote(reference)}")["found"]
        return str(found[0]["id"]) if found else None

    def booked(self, order: str, kind: Kind) -> list[int]:
        """The amounts that were really moved, from the provider's own books."""
        transfers: list[dict[str, Any]] = self.audit(order)["transfers"]
        return [t["amount_cents"] for t in transfers if t["kind"] == kind]

    def refusals(self, order: str) -> list[str]:
        """The codes with which it said no."""
        return [refusal["code"] for refusal in self.audit(order)["refusals"]]


@dataclass(frozen=True)
class Banks:
    """The providers of a test session, by mode.

    Attributes:
        folder: Where their books are.
        urls: Where they listen.
    """

    folder: Path
    urls: dict[str, str]

    def __getitem__(self, mode: str) -> Bank:
        return Bank(self.urls[mode])

    @property
    def environment(self) -> dict[str, str]:
        """What a worker needs to find them."""
        return {ENVIRONMENT: json.dumps(self.urls | {"away": AWAY})}

    def forget_keys(self, order: str) -> None:
        """The retention of this order's idempotency keys has passed."""
        with closing(sqlite3.connect(self.folder / "dedupes.db", timeout=10)) as books, books:
            books.execute(
                "DELETE FROM keys WHERE key IN (SELECT key FROM transfers WHERE order_id = ?)",
                (order,),
            )


def bank(mode: str, *, timeout: float = 5.0) -> Bank:
    """The provider of this mode, as a worker finds it."""
    return Bank(json.loads(os.environ[ENVIRONMENT])[mode], timeout)


@contextmanager
def open_banks(folder: Path) -> Iterator[Banks]:
    """Start one provider of each mode; they end with the context, or with this process."""
    processes = {mode: _start(folder, mode) for mode in Mode}
    try:
        urls = {str(mode): _url_of(process) for mode, process in processes.items()}
        yield Banks(folder, urls)
    finally:
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.close()
        for process in processes.values():
            process.wait(10)


def _start(folder: Path, mode: Mode) -> subprocess.Popen[str]:
    with (folder / f"{mode}.log").open("ab") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "examples.refund_agent.provider"),
                *("--mode", mode, "--ledger", str(folder / f"{mode}.db")),
                *("--read-timeout", str(READ_TIMEOUT)),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def _url_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url, f"a provider ended with {process.wait()}"
    return url


def await_booked(bank_: Bank, order: str, kind: Kind, count: int, timeout: float = 10.0) -> None:
    """Wait until so many transfers are in the books."""
    wait_for(
        lambda: len(bank_.booked(order, kind)) >= count,
        timeout,
        lambda: f"{count} {kind}s of {order}: {bank_.audit(order)}",
    )
