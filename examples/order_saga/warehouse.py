"""The shop's own tables, in Fencepost's database.

Steps write them in one transaction with their checkpoints.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from examples.order_saga.model import Order

metadata = sa.MetaData()

stock = sa.Table(
    "shop_stock",
    metadata,
    sa.Column("sku", sa.String(40), primary_key=True),
    sa.Column("free", sa.Integer, nullable=False),
)
reservations = sa.Table(
    "shop_reservations",
    metadata,
    sa.Column("order_id", sa.String(40), primary_key=True),
    sa.Column("sku", sa.String(40), nullable=False),
    sa.Column("quantity", sa.Integer, nullable=False),
)
deliveries = sa.Table(
    "shop_deliveries",
    metadata,
    sa.Column("order_id", sa.String(40), primary_key=True),
    sa.Column("execution_id", sa.String(36), nullable=False),
)


class OutOfStock(Exception):
    """There is not enough of it."""


def reserve(session: Session, order: Order) -> None:
    """Keep an order's goods for it.

    Raises:
        OutOfStock: There is not enough left.
    """
    enough = (stock.c.sku == order.sku) & (stock.c.free >= order.quantity)
    taken = session.execute(
        sa.update(stock).where(enough).values(free=stock.c.free - order.quantity).returning(stock)
    ).first()
    if taken is None:
        raise OutOfStock(f"{order.sku}: {order.quantity} are wanted, and there are fewer")
    session.execute(
        sa.insert(reservations).values(
            order_id=order.order_id, sku=order.sku, quantity=order.quantity
        )
    )


def release(session: Session, order: Order) -> None:
    """Put an order's goods back."""
    hand_over(session, order)
    session.execute(
        sa.update(stock).where(stock.c.sku == order.sku).values(free=stock.c.free + order.quantity)
    )


def hand_over(session: Session, order: Order) -> None:
    """Take the reserved goods out of the warehouse."""
    session.execute(sa.delete(reservations).where(reservations.c.order_id == order.order_id))


def expect(session: Session, order_id: str, execution_id: str) -> None:
    """Note which execution is to be told when the order arrives."""
    session.execute(sa.delete(deliveries).where(deliveries.c.order_id == order_id))
    session.execute(sa.insert(deliveries).values(order_id=order_id, execution_id=execution_id))


def expected_by(database: sa.Engine, order_id: str) -> str | None:
    """The execution that is to be told when an order arrives, if one waits for it."""
    query = sa.select(deliveries.c.execution_id).where(deliveries.c.order_id == order_id)
    with database.connect() as connection:
        return connection.execute(query).scalar_one_or_none()


def free(database: sa.Engine, sku: str) -> int:
    """How many are neither sold nor reserved."""
    with database.connect() as connection:
        query = sa.select(stock.c.free).where(stock.c.sku == sku)
        return int(connection.execute(query).scalar_one())


def open_shop(database: sa.Engine) -> None:
    """Make the tables."""
    metadata.create_all(database)


def fill(database: sa.Engine, sku: str, quantity: int) -> None:
    """Put goods on the shelf."""
    with database.begin() as connection:
        connection.execute(sa.insert(stock).values(sku=sku, free=quantity))
