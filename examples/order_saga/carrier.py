"""A stand-in for the carriers' API: it keeps labels in a database of its own, and dedupes by key.

`ORDER_CARRIER` is its file.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

SCHEMA = """
CREATE TABLE IF NOT EXISTS labels (
    key TEXT PRIMARY KEY, carrier TEXT NOT NULL, order_id TEXT NOT NULL, grams INTEGER NOT NULL
)
"""


def _connect() -> sqlite3.Connection:
    connection = sqlite3.connect(os.environ.get("ORDER_CARRIER", "carrier.sqlite3"), timeout=30)
    connection.execute(SCHEMA)
    return connection


def book(carrier: str, order_id: str, grams: int, *, key: str) -> str:
    """Book a transport, once for each key; returns the label."""
    with closing(_connect()) as labels, labels:
        labels.execute(
            "INSERT INTO labels VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (key, carrier, order_id, grams),
        )
        number = labels.execute("SELECT rowid FROM labels WHERE key = ?", (key,)).fetchone()[0]
    return f"{carrier}-{number:04}"


def booked(order_id: str) -> list[str]:
    """The carriers that are to fetch an order."""
    with closing(_connect()) as labels:
        query = "SELECT carrier FROM labels WHERE order_id = ?"
        return [row[0] for row in labels.execute(query, (order_id,))]
