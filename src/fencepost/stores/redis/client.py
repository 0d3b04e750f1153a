"""Connections that fail soon and say clearly what failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from fencepost.errors import ConfigurationError, ServiceUnavailableError


def connect(url: str, *, timeout: timedelta = timedelta(seconds=1)) -> redis.Redis:
    """A client that gives up on a dead network after about three timeouts.

    Args:
        url: `redis://`, `rediss://` or `unix://`, as redis-py reads it.
        timeout: For connecting, and for each answer.

    Raises:
        ConfigurationError: The URL can't be understood.
    """
    seconds = timeout.total_seconds()
    try:
        return redis.Redis.from_url(
            url,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            socket_keepalive=True,
            health_check_interval=15,
            # Explicit, because redis-py's own default outlasts a short lease by far.
            retry=Retry(ExponentialWithJitterBackoff(cap=0.2, base=0.05), retries=1),
        )
    except ValueError as problem:
        raise ConfigurationError(f"the Redis URL can't be used: {problem}") from None


def address(client: redis.Redis) -> str:
    """`host:port` or the socket's path; never a user name or password."""
    settings = client.connection_pool.connection_kwargs
    if "path" in settings:
        return str(settings["path"])
    return f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"


@contextmanager
def translated(client: redis.Redis) -> Iterator[None]:
    """Turn redis-py's errors into ours.

    Raises:
        ServiceUnavailableError: The server didn't answer, or refused the command.
    """
    try:
        yield
    except redis.RedisError as problem:
        silent = isinstance(problem, redis.ConnectionError | redis.TimeoutError)
        raise ServiceUnavailableError(
            f"Redis at {address(client)} {'does not answer' if silent else 'refused a command'}:"
            f" {problem}",
            service="redis",
            address=address(client),
        ) from problem
