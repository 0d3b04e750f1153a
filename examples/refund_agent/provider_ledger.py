"""The provider's own books, in SQLite: what was booked, under which key, and which fences stand."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

Kind = Literal["charge", "refund"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS transfers (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, order_id TEXT NOT NULL, amount_cents INTEGER NOT NULL,
    reference TEXT, key TEXT, execution TEXT, epoch INTEGER,
    booked_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX IF NOT EXISTS transfers_by_order ON transfers (order_id, kind);
CREATE INDEX IF NOT EXISTS transfers_by_reference ON transfers (reference, kind);
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY, digest TEXT NOT NULL, answer TEXT
);
CREATE TABLE IF NOT EXISTS marks (
    resource TEXT NOT NULL, execution TEXT NOT NULL, epoch INTEGER NOT NULL,
    PRIMARY KEY (resource, execution)
);
CREATE TABLE IF NOT EXISTS refusals (
    id INTEGER PRIMARY KEY, order_id TEXT NOT NULL, code TEXT NOT NULL, key TEXT,
    execution TEXT, epoch INTEGER, current INTEGER
);
"""


@dataclass(frozen=True)
class Transfer:
    """A request to move money."""

    kind: Kind
    order_id: str
    amount_cents: int
    reference: str | None = None
    key: str | None = None
    execution: str | None = None
    epoch: int | None = None


@dataclass(frozen=True)
class Answer:
    """An HTTP answer: a status and JSON."""

    status: int
    body: dict[str, Any]
    replayed: bool = False


def problem(status: int, code: str, message: str, **more: Any) -> Answer:
    """An answer that says no."""
    return Answer(status, {"error": {"code": code, "message": message, **more}})


class Ledger:
    """Books transfers. Every method is one transaction.

    Args:
        path: The database file; made if absent.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(SCHEMA)
            # A key in progress belonged to a request that has ended with the process before us.
            connection.execute("DELETE FROM keys WHERE answer IS NULL")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    # -- keys ------------------------------------------------------------------------------

    def claim_key(self, transfer: Transfer, digest: str) -> Answer | None:
        """Take a key for a request; None if it is this request's to serve."""
        with self._transaction() as books:
            known = _known_key(books, transfer, digest)
            if known is None:
                books.execute(
                    "INSERT INTO keys (key, digest) VALUES (?, ?)", (transfer.key, digest)
                )
            return known

    def release_key(self, key: str) -> None:
        """Nothing was booked under this key."""
        with self._transaction() as books:
            books.execute("DELETE FROM keys WHERE key = ? AND answer IS NULL", (key,))

    # -- booking ---------------------------------------------------------------------------

    def book(self, transfer: Transfer) -> Answer:
        """Book without looking at keys or fences."""
        with self._transaction() as books:
            return _book(books, transfer)

    def book_claimed(self, transfer: Transfer) -> Answer:
        """Book under a claimed key, and keep the answer with it."""
        with self._transaction() as books:
            answer = _book(books, transfer)
            _keep(books, transfer, answer)
            return answer

    def book_fenced(self, transfer: Transfer, digest: str) -> Answer:
        """Check the fence, then the key, then book: all in one transaction."""
        with self._transaction() as books:
            stale = _pass_fence(books, transfer.order_id, transfer)
            if stale is not None:
                return stale
            if transfer.key is None:
                return _book(books, transfer)
            known = _known_key(books, transfer, digest)
            if known is not None:
                return known
            books.execute("INSERT INTO keys (key, digest) VALUES (?, ?)", (transfer.key, digest))
            answer = _book(books, transfer)
            _keep(books, transfer, answer)
            return answer

    def raise_fence(self, resource: str, execution: str, epoch: int) -> Answer:
        """Raise the mark of a resource for an execution; refused if it is higher already."""
        with self._transaction() as books:
            fence = Transfer("refund", resource, 0, execution=execution, epoch=epoch)
            stale = _pass_fence(books, resource, fence)
            return stale or Answer(200, {"resource": resource, "epoch": epoch})

    # -- asking ----------------------------------------------------------------------------

    def with_reference(self, reference: str, kind: Kind) -> list[dict[str, Any]]:
        """What was booked under a caller's reference."""
        with closing(self._connect()) as books:
            query = "SELECT * FROM transfers WHERE reference = ? AND kind = ? ORDER BY rowid"
            return [_public(row) for row in books.execute(query, (reference, kind))]

    def audit(self, order_id: str | None) -> dict[str, Any]:
        """Everything that was booked and refused, for one order or all: an auditor's view."""
        which = "" if order_id is None else " WHERE order_id = ?"
        of = () if order_id is None else (order_id,)
        with closing(self._connect()) as books:
            transfers = books.execute(f"SELECT * FROM transfers{which} ORDER BY rowid", of)  # noqa: S608
            refusals = books.execute(f"SELECT * FROM refusals{which} ORDER BY id", of)  # noqa: S608
            return {
                "transfers": [dict(row) for row in transfers],
                "refusals": [dict(row) for row in refusals],
            }


def _book(books: sqlite3.Connection, transfer: Transfer) -> Answer:
    if transfer.kind == "refund":
        refused = _within_charges(books, transfer)
        if refused is not None:
            return refused
    transfer_id = f"{transfer.kind[:2]}_{uuid4().hex[:16]}"
    row = books.execute(
        "INSERT INTO transfers (id, kind, order_id, amount_cents, reference, key, execution, epoch)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
        (
            transfer_id,
            transfer.kind,
            transfer.order_id,
            transfer.amount_cents,
            transfer.reference,
            transfer.key,
            transfer.execution,
            transfer.epoch,
        ),
    ).fetchone()
    return Answer(201, _public(row))


def _within_charges(books: sqlite3.Connection, refund: Transfer) -> Answer | None:
    """As real providers do: nobody gets more back than was charged."""
    query = "SELECT COALESCE(SUM(amount_cents), 0) FROM transfers WHERE order_id = ? AND kind = ?"
    charged = books.execute(query, (refund.order_id, "charge")).fetchone()[0]
    refunded = books.execute(query, (refund.order_id, "refund")).fetchone()[0]
    if refunded + refund.amount_cents <= charged:
        return None
    _refuse(books, refund, "exceeds-charge", None)
    return problem(
        402,
        "exceeds-charge",
        f"order {refund.order_id} was charged {charged} cents and refunded {refunded} of them",
    )


def _known_key(books: sqlite3.Connection, transfer: Transfer, digest: str) -> Answer | None:
    row = books.execute("SELECT * FROM keys WHERE key = ?", (transfer.key,)).fetchone()
    if row is None:
        return None
    if row["digest"] != digest:
        _refuse(books, transfer, "key-conflict", None)
        return problem(422, "key-conflict", "this key was used with another request")
    if row["answer"] is None:
        _refuse(books, transfer, "in-progress", None)
        return problem(409, "in-progress", "a request with this key is in progress")
    status, body = json.loads(row["answer"])
    return Answer(status, body, replayed=True)


def _keep(books: sqlite3.Connection, transfer: Transfer, answer: Answer) -> None:
    kept = json.dumps([answer.status, answer.body])
    books.execute("UPDATE keys SET answer = ? WHERE key = ?", (kept, transfer.key))


def _pass_fence(books: sqlite3.Connection, resource: str, transfer: Transfer) -> Answer | None:
    if transfer.execution is None:
        return None
    mark = (resource, transfer.execution)
    query = "SELECT epoch FROM marks WHERE resource = ? AND execution = ?"
    row = books.execute(query, mark).fetchone()
    epoch = transfer.epoch or 0
    if row is not None and row["epoch"] > epoch:
        _refuse(books, transfer, "stale-token", row["epoch"])
        message = f"token of epoch {epoch} refused: the fence stands at {row['epoch']}"
        return problem(412, "stale-token", message, current=row["epoch"])
    books.execute("INSERT OR REPLACE INTO marks VALUES (?, ?, ?)", (*mark, epoch))
    return None


def _refuse(books: sqlite3.Connection, transfer: Transfer, code: str, current: int | None) -> None:
    # Committed with the transaction: a refusal changes nothing else.
    books.execute(
        "INSERT INTO refusals (order_id, code, key, execution, epoch, current)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (transfer.order_id, code, transfer.key, transfer.execution, transfer.epoch, current),
    )


def _public(row: sqlite3.Row) -> dict[str, Any]:
    return {name: row[name] for name in ("id", "kind", "order_id", "amount_cents", "reference")}
