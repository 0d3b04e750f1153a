"""An SQL table that steps write to, so that what ran can be counted."""

from __future__ import annotations

import functools
import os
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from fencepost import StepContext, TransactionalContext
from fencepost.stores.sql import create_engine

metadata = sa.MetaData()

sink = sa.Table(
    "sink",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("what", sa.String(30), nullable=False),
    sa.Column("execution_id", sa.Uuid, nullable=False, index=True),
    sa.Column("step", sa.String(100), nullable=False),
    sa.Column("step_key", sa.String(255), nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    # Only set by writers that deduplicate.
    sa.Column("idempotency_key", sa.String(255), unique=True),
)


def _row(ctx: StepContext, what: str) -> dict[str, Any]:
    return {
        "what": what,
        "execution_id": ctx.execution_id,
        "step": ctx.step,
        "step_key": ctx.step_key,
        "epoch": ctx.epoch,
        "attempt": ctx.attempt,
        "pid": os.getpid(),
    }


def note(ctx: StepContext, what: str = "ran") -> None:
    """Append a row at once: a step that runs twice leaves two."""
    with engine_of_process().begin() as connection:
        connection.execute(sa.insert(sink), _row(ctx, what))


def apply_once(ctx: StepContext, what: str = "applied") -> None:
    """An effect that the sink deduplicates by the step key."""
    engine = engine_of_process()
    insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert
    row = _row(ctx, what) | {"idempotency_key": f"{ctx.step_key}:{what}"}
    with engine.begin() as connection:
        connection.execute(insert(sink).on_conflict_do_nothing(), row)


def book(ctx: TransactionalContext, what: str = "booked") -> None:
    """An effect inside the step's own transaction."""
    ctx.session.execute(sa.insert(sink), _row(ctx, what))


def engine_of_process() -> sa.Engine:
    """Of the sample tables' own: what a step writes there is not in its transaction."""
    return _engine(os.getpid())


@functools.lru_cache(maxsize=2)
def _engine(_pid: int) -> sa.Engine:
    return create_engine(os.environ["FENCEPOST_DATABASE_URL"])
