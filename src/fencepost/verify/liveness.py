"""Reading leases from Redis, and messages from a broker on Redis."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from fencepost.errors import ConfigurationError, ServiceUnavailableError
from fencepost.verify.facts import MessageFact
from fencepost.verify.names import JOIN_TASK, RUN_TASK

PAGE = 500
TIMEOUT = 5.0
SCHEMES = ("redis://", "rediss://", "unix://")


class RedisReader:
    """Reads leases and messages. Sends no command that writes.

    Args:
        url: `redis://`, `rediss://` or `unix://`.

    Raises:
        ConfigurationError: The URL can't be understood.
    """

    def __init__(self, url: str) -> None:
        try:
            self._client = redis.Redis.from_url(
                url,
                socket_timeout=TIMEOUT,
                socket_connect_timeout=TIMEOUT,
                decode_responses=True,
                encoding_errors="replace",
                retry=Retry(ConstantBackoff(0.1), retries=1),
            )
        except ValueError as problem:
            raise ConfigurationError(f"the Redis URL can't be used: {problem}") from None

    def leases(
        self, execution_ids: Sequence[UUID], prefix: str
    ) -> Iterator[tuple[UUID, str | None, int | None, bool]]:
        """Of those that Redis knows of: id, owner, settled epoch, whether listed as held.

        Raises:
            ServiceUnavailableError: Redis doesn't answer.
        """
        for start in range(0, len(execution_ids), PAGE):
            page = execution_ids[start : start + PAGE]
            pipeline = self._client.pipeline(transaction=False)
            for execution_id in page:
                pipeline.hmget(f"{prefix}lease:{execution_id}", ["owner", "epoch"])
                pipeline.zscore(f"{prefix}leases", str(execution_id))
            with self._answering():
                answers = pipeline.execute()
            for execution_id, (owner, epoch), score in zip(
                page, answers[0::2], answers[1::2], strict=True
            ):
                if owner is not None or epoch is not None or score is not None:
                    settled = int(epoch) if epoch is not None else None
                    yield execution_id, owner, settled, score is not None

    def messages(self) -> Iterator[MessageFact]:
        """Fencepost's messages in every queue, and in every hash of unacknowledged ones.

        Queues are found by their type, so that no name or prefix need be known.

        Raises:
            ServiceUnavailableError: Redis doesn't answer.
        """
        with self._answering():
            for key in self._client.scan_iter(count=PAGE, _type="list"):
                for raw in self._items(key):
                    yield from _decoded(raw, key)
            for key in self._client.scan_iter(match="*unacked", count=PAGE, _type="hash"):
                for _tag, raw in self._client.hscan_iter(key, count=PAGE):
                    yield from _decoded(raw, key)

    def _items(self, key: str) -> Iterator[str]:
        start = 0
        while page := self._client.lrange(key, start, start + PAGE - 1):
            yield from page  # type: ignore[misc] # its stubs don't tell the synchronous client
            start += PAGE

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except redis.RedisError as problem:
            settings = self._client.connection_pool.connection_kwargs
            where = settings.get("path") or f"{settings.get('host')}:{settings.get('port')}"
            raise ServiceUnavailableError(
                f"Redis at {where} does not answer: {problem}", service="redis", address=where
            ) from problem

    def close(self) -> None:
        """Give the connections up."""
        self._client.close()


def _decoded(raw: str, place: str) -> Iterator[MessageFact]:
    """A message of ours, as kombu writes it; an unacknowledged one comes with its routing."""
    try:
        message = json.loads(raw)
        if isinstance(message, list):
            message = message[0]
        headers = message["headers"]
        task = headers["task"]
        if task in (RUN_TASK, JOIN_TASK):
            yield MessageFact(UUID(_first_argument(message) or headers["id"]), task, place)
    except (ValueError, KeyError, TypeError, IndexError):
        # Other people's lists; and a message that even Celery couldn't read.
        return


def _first_argument(message: dict[str, Any]) -> str | None:
    body = message["body"]
    try:
        if message["properties"].get("body_encoding") == "base64":
            body = base64.b64decode(body)
        return str(json.loads(body)[0][0])
    except (ValueError, binascii.Error, KeyError, TypeError, IndexError):
        return None
