"""Which versions of which sagas are in flight; and moving an execution to another version."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from fencepost.records import Event, EventName, Execution, Status
from fencepost.stores.sql import lines, rows, statements
from fencepost.stores.sql.executions import SqlExecutionStore
from fencepost.stores.sql.schema import executions
from fencepost.stores.sql.statements import LIVE
from fencepost.stores.sql.types import now


@dataclass(frozen=True, slots=True)
class InFlight:
    """The live executions of one version of a saga.

    Attributes:
        counts: How many there are of each status.
        oldest: When the oldest of them was started.
        known: Whether the app that asks has this version registered.
    """

    saga: str
    version: str
    counts: Mapping[Status, int]
    oldest: datetime
    known: bool

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.counts.values())


def in_flight(store: SqlExecutionStore, known: Collection[tuple[str, str]]) -> list[InFlight]:
    """The live executions by saga and version, sorted by those.

    Args:
        store: Of any process.
        known: (saga, version) of what is registered.

    Raises:
        ServiceUnavailableError: The database doesn't answer.
    """
    of = (executions.c.saga, executions.c.version)
    query = (
        sa.select(
            *of,
            executions.c.status,
            sa.func.count().label("number"),
            sa.func.min(executions.c.created_at).label("oldest"),
        )
        .where(executions.c.status.in_(LIVE))
        .group_by(*of, executions.c.status)
    )
    counts: dict[tuple[str, str], dict[Status, int]] = {}
    oldest: dict[tuple[str, str], datetime] = {}
    with store.reading() as connection:
        for row in connection.execute(query):
            version = (row.saga, row.version)
            counts.setdefault(version, {})[Status(row.status)] = row.number
            oldest[version] = min(row.oldest, oldest.get(version, row.oldest))
    return [
        InFlight(*version, counts[version], oldest[version], version in known)
        for version in sorted(counts)
    ]


class SqlRepins:
    """Implements `fencepost.engine.repinning.Repins`.

    Args:
        store: Of any process.
    """

    def __init__(self, store: SqlExecutionStore) -> None:
        self._store = store
        self.chain = store.chain
        self.children = store.children

    def others(
        self, saga: str, version: str, from_version: str | None, after: UUID | None, limit: int
    ) -> list[Execution]:
        """See `Repins.others`."""
        query = sa.select(*rows.EXECUTION_COLUMNS).where(
            executions.c.saga == saga,
            executions.c.version != version,
            executions.c.status.in_(LIVE),
        )
        if from_version is not None:
            query = query.where(executions.c.version == from_version)
        if after is not None:
            query = query.where(executions.c.execution_id > after)
        with self._store.reading() as connection:
            page = connection.execute(query.order_by(executions.c.execution_id).limit(limit))
            return [rows.execution(row) for row in page]

    def move(
        self, execution: Execution, version: str, queue: str | None, *, by: str, why: str
    ) -> Execution | None:
        """See `Repins.move`. Whoever runs the execution is fenced, as at a takeover."""
        execution_id = execution.execution_id
        with self._store.writing() as connection:
            row = lines.lock(connection, execution_id)
            read = (execution.head, execution.epoch, execution.version, execution.status)
            if (row.head, row.epoch, row.version, row.status) != read or row.directive is not None:
                return None
            due = sa.case((executions.c.status == Status.ACTIVE, now()), else_=executions.c.due_at)
            connection.execute(
                sa.update(executions)
                .where(executions.c.execution_id == execution_id)
                .values(
                    version=version,
                    epoch=row.epoch + 1,
                    owner=None,
                    fenced_owner=row.owner or row.fenced_owner,
                    queue=queue,
                    dispatches=0,
                    due_at=due,
                )
            )
            details = {"from": row.version, "to": version, "by": by, "why": why}
            raised = {"by": str(execution_id), "head_seq": row.head_seq}
            events = [
                Event(execution_id=execution_id, name=name, epoch=row.epoch + 1, details=told)
                for name, told in ((EventName.REPINNED, details), (EventName.EPOCH_RAISED, raised))
            ]
            connection.execute(
                statements.INSERT_EVENT, [rows.event_values(event) for event in events]
            )
            return lines.lock(connection, execution_id)
