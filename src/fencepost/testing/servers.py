"""Real servers from wheels, owned by this process: no system packages, no containers.

Example:
    >>> with embedded_redis("/tmp/demo/redis") as redis, embedded_postgres("/tmp/demo/pg") as sql:
    ...     print(redis.url, sql.url)

Each listens on 127.0.0.1 only, on a free port that it keeps through restarts, and ends with this
process, however that ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fencepost.testing._postgres import PostgresServer
from fencepost.testing._process import ServerError
from fencepost.testing._redis import RedisServer

__all__ = [
    "PostgresServer",
    "RedisServer",
    "ServerError",
    "embedded_postgres",
    "embedded_redis",
]


@contextmanager
def embedded_redis(
    directory: Path | str,
    *,
    password: str | None = None,
    port: int | None = None,
    appendonly: bool = False,
) -> Iterator[RedisServer]:
    """Run a Valkey server for the length of a ``with`` block.

    Args:
        directory: Where its log and data go; made if absent, kept afterwards.
        password: Required of clients if given.
        port: A certain TCP port; by default a free one.
        appendonly: Keep data on disk, so that a restart (but not ``empty=True``) finds it.

    Raises:
        ServerError: The package is missing, or the server did not start.
    """
    with RedisServer(directory, password=password, port=port, appendonly=appendonly) as server:
        yield server


@contextmanager
def embedded_postgres(
    directory: Path | str,
    *,
    port: int | None = None,
    database: str = "fencepost",
    password: str | None = None,
    fsync: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Iterator[PostgresServer]:
    """Run a PostgreSQL server for the length of a ``with`` block.

    Args:
        directory: Where its log and data go; made if absent, kept afterwards. When the caller is
            root and the directory is closed to others, the data goes to a temporary folder.
        port: A certain TCP port; by default a free one.
        database: Made at the first start.
        password: Of the user ``fencepost``; by default a random one.
        fsync: Whether commits survive a crash of the machine (they always survive the server's).
        settings: More server parameters, such as ``{"max_connections": "200"}``.

    Raises:
        ServerError: A package is missing, or the server did not start.
    """
    with PostgresServer(
        directory, port=port, database=database, password=password, fsync=fsync, settings=settings
    ) as server:
        yield server
