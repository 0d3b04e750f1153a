"""The warehouse's tables, in Fencepost's database.

Steps write them in one transaction with their checkpoints.
"""

from __future__ import annotations

from datetime import date

import sqlalchemy as sa
from sqlalchemy.orm import Session

from examples.data_pipeline.model import Partition

metadata = sa.MetaData()

pages = sa.Table(
    "pipeline_pages",
    metadata,
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("source", sa.String(40), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("page", sa.Integer, primary_key=True),
    sa.Column("rows", sa.JSON, nullable=False),
    sa.Column("count", sa.Integer, nullable=False),
)
days = sa.Table(
    "pipeline_days",
    metadata,
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("rows", sa.Integer, nullable=False),
    sa.Column("failed", sa.Integer, nullable=False),
)


def _one(partition: Partition) -> sa.ColumnElement[bool]:
    return (
        (pages.c.day == partition.day)
        & (pages.c.source == partition.source)
        & (pages.c.number == partition.number)
    )


def write(session: Session, partition: Partition, page: int, rows: list[str]) -> None:
    """Keep a page's rows."""
    session.execute(
        sa.insert(pages).values(
            day=partition.day,
            source=partition.source,
            number=partition.number,
            page=page,
            rows=rows,
            count=len(rows),
        )
    )


def discard(session: Session, partition: Partition, page: int) -> None:
    """Forget a page's rows."""
    session.execute(sa.delete(pages).where(_one(partition) & (pages.c.page == page)))


def count(session: Session | sa.Connection, partition: Partition) -> int:
    """How many rows of a partition are there."""
    query = sa.select(sa.func.coalesce(sa.func.sum(pages.c.count), 0)).where(_one(partition))
    return int(session.execute(query).scalar_one())


def total(session: Session | sa.Connection, day: date) -> int:
    """How many rows of a day are there."""
    query = sa.select(sa.func.coalesce(sa.func.sum(pages.c.count), 0)).where(pages.c.day == day)
    return int(session.execute(query).scalar_one())


def publish(session: Session, day: date, rows: int, failed: int) -> None:
    """Let readers see a day."""
    session.execute(sa.insert(days).values(day=day, rows=rows, failed=failed))


def published(database: sa.Engine) -> dict[date, tuple[int, int]]:
    """By day: rows that are there, and partitions that are missing."""
    with database.connect() as connection:
        query = sa.select(days.c.day, days.c.rows, days.c.failed).order_by(days.c.day)
        return {row.day: (row.rows, row.failed) for row in connection.execute(query)}


def open_warehouse(database: sa.Engine) -> None:
    """Make the tables."""
    metadata.create_all(database)
