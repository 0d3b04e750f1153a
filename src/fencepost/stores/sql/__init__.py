"""The execution store on PostgreSQL and SQLite."""

from fencepost.stores.sql.effects import SqlEffectStore
from fencepost.stores.sql.engine import create_engine
from fencepost.stores.sql.executions import SqlExecutionStore
from fencepost.stores.sql.limits import SqlLimitStore
from fencepost.stores.sql.migrate import check_schema, migrate

__all__ = [
    "SqlEffectStore",
    "SqlExecutionStore",
    "SqlLimitStore",
    "check_schema",
    "create_engine",
    "migrate",
]
