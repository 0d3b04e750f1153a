"""Lists of executions for people: the command line and dashboards."""

from __future__ import annotations

import sqlalchemy as sa

from fencepost.records import Execution, Status
from fencepost.saga.signals import APPROVAL
from fencepost.stores.sql import rows
from fencepost.stores.sql.executions import SqlExecutionStore
from fencepost.stores.sql.schema import executions


def recent(
    store: SqlExecutionStore,
    *,
    status: Status | None = None,
    saga: str | None = None,
    limit: int = 20,
) -> list[Execution]:
    """The newest executions.

    Args:
        store: Of any process.
        status: Only those.
        saga: Only those of this name, whatever the version.
        limit: How many at most.

    Raises:
        ServiceUnavailableError: The database doesn't answer.
    """
    query = sa.select(*rows.EXECUTION_COLUMNS)
    if status is not None:
        query = query.where(executions.c.status == status)
    if saga is not None:
        query = query.where(executions.c.saga == saga)
    newest = query.order_by(executions.c.created_at.desc(), executions.c.child_index.desc())
    with store.reading() as connection:
        found = connection.execute(newest.limit(limit))
        return [rows.execution(row) for row in found]


def waiting_for_people(
    store: SqlExecutionStore, *, saga: str | None = None, limit: int = 20
) -> list[Execution]:
    """Executions that are parked, or wait for an approval; the oldest first.

    Args:
        store: Of any process.
        saga: Only those of this name, whatever the version.
        limit: How many at most.

    Raises:
        ServiceUnavailableError: The database doesn't answer.
    """
    asked = sa.and_(
        executions.c.status == Status.WAITING,
        executions.c.waits_for.startswith(APPROVAL, autoescape=True),
        executions.c.turned_back.is_(sa.null()),
    )
    query = sa.select(*rows.EXECUTION_COLUMNS).where(
        sa.or_(executions.c.status == Status.PARKED, asked)
    )
    if saga is not None:
        query = query.where(executions.c.saga == saga)
    oldest = query.order_by(executions.c.created_at, executions.c.child_index)
    with store.reading() as connection:
        return [rows.execution(row) for row in connection.execute(oldest.limit(limit))]
