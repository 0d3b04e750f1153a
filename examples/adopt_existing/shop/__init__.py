"""What the project has beside its tasks, and keeps as it is: orders, a gateway, mail.

`SHOP_DATABASE_URL` names the shop's database, `SHOP_FOLDER` a folder for the stand-ins of the
gateway and the mail server, and `SHOP_BROKER` Celery's broker. `SHOP_CRASH` may name a moment at
which the worker is lost, once: `booked` or `mailed`.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from pydantic import BaseModel
from sqlalchemy.orm import Session

ORDERS = """CREATE TABLE orders (
    number VARCHAR(20) PRIMARY KEY, item VARCHAR(20), cents INTEGER, mail VARCHAR(100),
    charge VARCHAR(40)
)"""
STOCK = "CREATE TABLE stock (item VARCHAR(20) PRIMARY KEY, pieces INTEGER)"


class Order(BaseModel):
    """An order as the shop took it."""

    number: str
    item: str
    cents: int
    mail: str


@functools.lru_cache(maxsize=2)
def _engine(_pid: int) -> sa.Engine:
    return sa.create_engine(os.environ["SHOP_DATABASE_URL"])


def engine() -> sa.Engine:
    """The shop's database, in this process."""
    return _engine(os.getpid())


def create_tables(stock: dict[str, int]) -> None:
    """Open the shop."""
    with engine().begin() as connection:
        for statement in (ORDERS, STOCK):
            connection.execute(sa.text(statement))
        for item, count in stock.items():
            row = {"item": item, "pieces": count}
            connection.execute(sa.text("INSERT INTO stock VALUES (:item, :pieces)"), row)


def take_order(order: Order) -> None:
    """Write an order down; a web request does that."""
    query = "INSERT INTO orders (number, item, cents, mail) VALUES (:number, :item, :cents, :mail)"
    with engine().begin() as connection:
        connection.execute(sa.text(query), order.model_dump())


def find(number: str) -> Order:
    """An order by its number."""
    query = sa.text("SELECT number, item, cents, mail FROM orders WHERE number = :number")
    with engine().connect() as connection:
        row = connection.execute(query, {"number": number}).one()
    return Order.model_validate(row._asdict())


def book(session: Session, order: Order, charge: str) -> None:
    """Note the charge, and take the item from the stock. The caller commits."""
    session.execute(
        sa.text("UPDATE stock SET pieces = pieces - 1 WHERE item = :item"), {"item": order.item}
    )
    session.execute(
        sa.text("UPDATE orders SET charge = :charge WHERE number = :number"),
        {"charge": charge, "number": order.number},
    )


@contextmanager
def transaction() -> Iterator[Session]:
    """A session that commits at the end of its block."""
    with Session(engine()) as session, session.begin():
        yield session
    crash_if_told("booked")


def pieces(item: str) -> int:
    """What is left of an item."""
    with engine().connect() as connection:
        query = sa.text("SELECT pieces FROM stock WHERE item = :item")
        return int(connection.execute(query, {"item": item}).scalar_one())


def folder() -> Path:
    """Where the stand-ins keep what they were asked for."""
    return Path(os.environ["SHOP_FOLDER"])


def crash_if_told(moment: str) -> None:
    """Lose this worker with all its processes, the first time that the moment comes."""
    if os.environ.get("SHOP_CRASH") != moment:
        return
    try:
        (folder() / f"crashed-{moment}").touch(exist_ok=False)
    except FileExistsError:
        return
    os.killpg(os.getpgrp(), signal.SIGKILL)
