"""Lists of executions for people: the command line and dashboards."""

from __future__ import annotations

import sqlalchemy as sa

from fencepost.records import Execution, Status
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
