"""A warehouse: another database, written to through the fenced SQL sink that we ship."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost import EffectCall, FenceToken
from fencepost.sinks import tables
from fencepost.sinks.sql import SqlSink

metadata = sa.MetaData()
deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("reference", sa.String(100), nullable=False, index=True),
    sa.Column("execution_id", sa.Uuid, nullable=False),
    sa.Column("key", sa.String(255), nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("at", sa.DateTime(timezone=True), server_default=sa.func.current_timestamp()),
)


class Warehouse:
    """Delivers, once for each key.

    Args:
        engine: Of the warehouse's own database.
        fenced: Whether it checks fence and key; without, it does whatever it is told.
    """

    def __init__(self, engine: sa.Engine, *, fenced: bool = True) -> None:
        self._engine = engine
        self._fenced = fenced
        wait = timedelta(seconds=2)
        self._sink = SqlSink(engine, wait=wait, idle=wait)

    def create(self) -> None:
        """Make its tables."""
        tables.create_tables(self._engine)
        metadata.create_all(self._engine)

    def advance(self, resource: str, token: FenceToken) -> None:
        """Raise the mark of an execution."""
        if self._fenced:
            self._sink.advance(resource, token)

    def deliver(self, call: EffectCall, reference: str) -> int:
        """Deliver; returns the number of the delivery."""

        def write(session: Session) -> int:
            row = {
                "reference": reference,
                "execution_id": call.token.execution_id,
                "key": call.key,
                "epoch": call.token.epoch,
                "owner": call.token.owner,
            }
            insert = sa.insert(deliveries).values(row).returning(deliveries.c.id)
            return int(session.execute(insert).scalar_one())

        if not self._fenced:
            with self._sink.transaction() as session:
                number = write(session)
                session.land()
                return number
        return int(self._sink.apply(call, write).result)
