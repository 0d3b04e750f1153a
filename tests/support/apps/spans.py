"""An SQL table in which steps write down when they began and when they ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from fencepost import StepContext
from tests.support.apps.sink import engine_of_process, metadata

spans = sa.Table(
    "spans",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("execution_id", sa.Uuid, nullable=False),
    sa.Column("step", sa.String(100), nullable=False),
    sa.Column("label", sa.String(100), nullable=False),
    # Seconds by the clock of the machine, which all workers of a test share.
    sa.Column("began_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
)


@dataclass(frozen=True)
class Span:
    """One run of a step's body.

    Attributes:
        label: Of the order that it was given.
        began_at: In seconds.
        ended_at: None for one that its worker didn't survive.
    """

    execution_id: UUID
    label: str
    began_at: float
    ended_at: float | None


@contextmanager
def timed(ctx: StepContext, label: str) -> Iterator[None]:
    """Write down when the block began and when it ended."""
    began_at = time.time()
    row = {"execution_id": ctx.execution_id, "step": ctx.step, "label": label}
    engine = engine_of_process()
    with engine.begin() as connection:
        insert = sa.insert(spans).values(**row, began_at=began_at).returning(spans.c.id)
        number = connection.execute(insert).scalar_one()
    yield
    ended_at = time.time()
    with engine.begin() as connection:
        update = sa.update(spans).where(spans.c.id == number).values(ended_at=ended_at)
        connection.execute(update)


def read(engine: sa.Engine, step: str) -> list[Span]:
    """What a step's bodies have written down, in the order in which they began."""
    columns = (spans.c.execution_id, spans.c.label, spans.c.began_at, spans.c.ended_at)
    query = sa.select(*columns).where(spans.c.step == step).order_by(spans.c.began_at)
    with engine.connect() as connection:
        return [Span(*row) for row in connection.execute(query)]
