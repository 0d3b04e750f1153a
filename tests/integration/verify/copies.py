"""Copies of a finished run, without the constraints that would keep a test from breaking them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa

from fencepost.stores.sql import create_engine
from fencepost.stores.sql.schema import metadata
from tests.support.inline import Inline

Row = dict[str, Any]

PLAIN = sa.MetaData()
for table in metadata.tables.values():
    sa.Table(table.name, PLAIN, *(sa.Column(c.name, c.type) for c in table.columns))
EXECUTIONS, CHECKPOINTS, EVENTS, EFFECTS, SIGNALS = (
    PLAIN.tables[f"fencepost_{name}"]
    for name in ("executions", "checkpoints", "events", "effects", "signals")
)


@dataclass(frozen=True)
class Original:
    """All rows of a database in which stories have been told.

    Attributes:
        started: The executions that were started, by name.
    """

    started: dict[str, UUID]
    rows: dict[str, list[Row]]

    @classmethod
    def of(cls, fleet: Inline, started: dict[str, UUID]) -> Original:
        with fleet.database.connect() as connection:
            rows = {
                name: [dict(row._mapping) for row in connection.execute(sa.select(table))]
                for name, table in PLAIN.tables.items()
            }
        return cls(started, rows)

    def copy_to(self, url: str) -> Copy:
        engine = create_engine(url)
        with engine.begin() as connection:
            PLAIN.drop_all(connection)
            PLAIN.create_all(connection)
            for name, table in PLAIN.tables.items():
                if self.rows[name]:
                    connection.execute(sa.insert(table), self.rows[name])
        return Copy(url, engine, self.started)


@dataclass
class Copy:
    """A copy to break."""

    url: str
    engine: sa.Engine
    started: dict[str, UUID] = field(default_factory=dict)

    def execute(self, statement: sa.Executable) -> int:
        engine = self.engine
        if engine.dialect.name == "postgresql":
            engine = engine.execution_options(isolation_level="READ COMMITTED")
        with engine.begin() as connection:
            count: int = connection.execute(statement).rowcount
        assert count != 0, f"nothing was broken by {statement}"
        return count

    def update(self, table: sa.Table, where: Row, **values: Any) -> None:
        self.execute(sa.update(table).where(*_matching(table, where)).values(**values))

    def delete(self, table: sa.Table, **where: Any) -> None:
        self.execute(sa.delete(table).where(*_matching(table, where)))

    def insert(self, table: sa.Table, row: Row) -> None:
        self.execute(sa.insert(table).values(**row))

    def rows(self, table: sa.Table, **where: Any) -> list[Row]:
        query = sa.select(table).where(*_matching(table, where))
        query = query.order_by(
            *(c for c in table.c if c.name in ("seq", "event_id", "child_index", "number"))
        )
        with self.engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def row(self, table: sa.Table, **where: Any) -> Row:
        (found,) = self.rows(table, **where)
        return found

    # -- who is who ------------------------------------------------------------------------

    @property
    def root(self) -> UUID:
        """The execution that the story begins with."""
        return self.started["story"]

    @property
    def second(self) -> UUID:
        """The second attempt: it succeeded, after a worker had been killed."""
        found: UUID = self.row(EXECUTIONS, lineage_id=self.root, status="succeeded")["execution_id"]
        return found

    def child(self, parent: UUID, index: int) -> UUID:
        """Child 0 of the first attempt is the one that had a zombie."""
        found: UUID = self.row(EXECUTIONS, parent_id=parent, child_index=index)["execution_id"]
        return found

    def checkpoint(self, execution_id: UUID, kind: str, step: str, visit: int = 1) -> Row:
        where = {"execution_id": execution_id, "kind": kind, "step": step, "visit": visit}
        return self.row(CHECKPOINTS, **where)

    def change(self, entry: Row, **values: Any) -> None:
        """Change a checkpoint."""
        self.update(CHECKPOINTS, {"checkpoint_id": entry["checkpoint_id"]}, **values)

    def append(self, execution_id: UUID, like: Row, **values: Any) -> None:
        """Extend a chain the right way, with a checkpoint that does not belong there."""
        last = self.rows(CHECKPOINTS, execution_id=execution_id)[-1]
        new = like | {
            "checkpoint_id": uuid4(),
            "seq": last["seq"] + 1,
            "parent_checkpoint_id": last["checkpoint_id"],
            "epoch": last["epoch"],
            "owner": last["owner"],
            **values,
        }
        self.insert(CHECKPOINTS, new)
        self._lead_to(execution_id, new)

    def cut(self, execution_id: UUID) -> None:
        """Shorten a chain by its last checkpoint, the right way."""
        *_, before, last = self.rows(CHECKPOINTS, execution_id=execution_id)
        self.delete(CHECKPOINTS, checkpoint_id=last["checkpoint_id"])
        self._lead_to(execution_id, before)

    def _lead_to(self, execution_id: UUID, head: Row) -> None:
        self.update(
            EXECUTIONS,
            {"execution_id": execution_id},
            head=head["checkpoint_id"],
            head_seq=head["seq"],
        )


Break = Callable[[Copy], None]


def _matching(table: sa.Table, where: Row) -> list[Any]:
    return [table.c[name] == value for name, value in where.items()]
