"""What the parts of the execution store share: an engine and its transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import sqlalchemy as sa

from fencepost.stores.sql.engine import READ, available


class SqlStore:
    """Opens transactions on one database.

    Args:
        engine: From `fencepost.stores.sql.create_engine`.
        start_grace: How long a new execution's message has to arrive before the reaper looks.
    """

    def __init__(
        self, engine: sa.Engine, *, start_grace: timedelta = timedelta(seconds=10)
    ) -> None:
        self.engine = engine
        self.grace = start_grace.total_seconds()
        self.postgresql = engine.dialect.name == "postgresql"

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction of several statements."""
        engine = self.engine
        if self.postgresql:
            engine = engine.execution_options(isolation_level="READ COMMITTED")
        with available(self.engine), engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that only reads."""
        with available(self.engine), self.engine.connect() as connection:
            yield connection.execution_options(**READ)
