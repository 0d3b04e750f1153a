"""The lease store on Redis 6.2+ or Valkey: one Lua script per operation.

Keys, below the prefix: `lease:{execution id}` is a hash of owner, settled epoch and expiry;
`leases` is a sorted set of the held ones by expiry. A script touches both, so they belong on
one node. On a cluster, a hash tag in the prefix (`{fencepost}:`) keeps them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from importlib import resources
from typing import Any
from uuid import UUID

import redis

from fencepost.clock import seconds_alive
from fencepost.errors import ConfigurationError
from fencepost.records import Lease, LeaseState
from fencepost.stores.redis.client import connect, translated

MEMORY = timedelta(days=7)
"""How long a settled epoch outlives its lease. Losing it costs one more exchange with SQL."""

_BATCH = 500


class RedisLeaseStore:
    """Leases whose expiry is decided by the Redis server's clock.

    Args:
        client: Any redis-py client of one server; `connect` makes one that fails soon.
        prefix: Put before every key.
        clock: The holder's monotonic clock, in seconds; local deadlines count on it.
        margin: The part of the time to live by which the holder trusts its lease less than
            Redis does.

    Every method raises `ServiceUnavailableError` when the server can't be reached. The request
    may then have been carried out all the same: a lease taken that way expires by itself.
    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        prefix: str = "fencepost:",
        clock: Callable[[], float] = seconds_alive,
        margin: float = 0.1,
    ) -> None:
        if not 0 < margin < 1:
            raise ConfigurationError(f"margin must lie between 0 and 1, not at {margin}")
        self._client = client
        self._prefix = prefix
        self._all = f"{prefix}leases"
        self._clock = clock
        self._margin = margin
        with translated(client):
            self._acquire = client.register_script(_source("acquire"))
            self._hold = client.register_script(_source("hold"))
            self._release = client.register_script(_source("release"))
            self._claim_expired = client.register_script(_source("claim_expired"))
            self._discard = client.register_script(_source("discard"))

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        prefix: str = "fencepost:",
        timeout: timedelta = timedelta(seconds=1),
    ) -> RedisLeaseStore:
        """Make a store with connections of its own; nothing is sent yet.

        Args:
            url: `redis://`, `rediss://` or `unix://`.
            prefix: Put before every key.
            timeout: For connecting, and for each answer.
        """
        return cls(connect(url, timeout=timeout), prefix=prefix)

    def acquire(self, execution_id: UUID, owner: str, ttl: timedelta) -> Lease | None:
        """Take the lease if it is free or expired, proposing the next epoch.

        An owner's own live lease counts as taken too: owners are unique per acquisition.
        """
        asked_at = self._clock()
        with translated(self._client):
            proposed = self._acquire(
                keys=[self._key(execution_id), self._all],
                args=[str(execution_id), owner, _ms(ttl), _ms(ttl + MEMORY)],
            )
        if proposed is None:
            return None
        return Lease(execution_id, owner, int(proposed), self._deadline(asked_at, ttl))

    def settle(self, lease: Lease, epoch: int, ttl: timedelta) -> Lease | None:
        """Write back the epoch that SQL has decided, and renew. None if the lease is lost."""
        return self._extend(lease, epoch, ttl, restore=False)

    def renew(self, lease: Lease, ttl: timedelta, *, restore: bool) -> Lease | None:
        """Extend the lease if it is still live and ours; see the port for `restore`."""
        return self._extend(lease, lease.epoch, ttl, restore=restore)

    def release(self, lease: Lease, *, forget: bool) -> bool:
        """Give the lease up if it is ours. `forget` drops the epoch too (execution ended)."""
        with translated(self._client):
            released = self._release(
                keys=[self._key(lease.execution_id), self._all],
                args=[str(lease.execution_id), lease.owner, 0 if forget else _ms(MEMORY)],
            )
        return bool(released)

    def state(self, execution_ids: Sequence[UUID]) -> list[LeaseState | None]:
        """For each execution its live lease, or None. One round trip."""
        if not execution_ids:
            return []
        pipeline = self._client.pipeline(transaction=False)
        pipeline.time()
        for execution_id in execution_ids:
            pipeline.hmget(self._key(execution_id), ["owner", "epoch", "expires"])
        with translated(self._client):
            (seconds, micros), *leases = pipeline.execute()
        now = seconds * 1000 + micros // 1000
        return [_state(owner, epoch, expires, now) for owner, epoch, expires in leases]

    def claim_expired(self, limit: int, hold: timedelta) -> list[UUID]:
        """Executions whose lease has expired, each hidden from other claimants for `hold`."""
        with translated(self._client):
            found = self._claim_expired(keys=[self._all], args=[limit, _ms(hold)])
        return [UUID(_text(execution_id)) for execution_id in found]

    def discard(self, execution_ids: Iterable[UUID]) -> None:
        """Forget executions that have ended, unless somebody holds a live lease on them."""
        ids = list(execution_ids)
        for start in range(0, len(ids), _BATCH):
            batch = ids[start : start + _BATCH]
            with translated(self._client):
                self._discard(
                    keys=[self._all, *(self._key(execution_id) for execution_id in batch)],
                    args=[str(execution_id) for execution_id in batch],
                )

    def _extend(self, lease: Lease, epoch: int, ttl: timedelta, *, restore: bool) -> Lease | None:
        asked_at = self._clock()
        with translated(self._client):
            held = self._hold(
                keys=[self._key(lease.execution_id), self._all],
                args=[
                    str(lease.execution_id),
                    lease.owner,
                    epoch,
                    _ms(ttl),
                    _ms(ttl + MEMORY),
                    int(restore),
                ],
            )
        if not held:
            return None
        return Lease(lease.execution_id, lease.owner, epoch, self._deadline(asked_at, ttl))

    def _key(self, execution_id: UUID) -> str:
        return f"{self._prefix}lease:{execution_id}"

    def _deadline(self, asked_at: float, ttl: timedelta) -> float:
        return asked_at + ttl.total_seconds() * (1 - self._margin)


def _source(operation: str) -> str:
    return (resources.files(__package__) / "lua" / f"{operation}.lua").read_text("utf-8")


def _ms(span: timedelta) -> int:
    milliseconds = span // timedelta(milliseconds=1)
    if milliseconds < 1:
        raise ConfigurationError(f"a lease can't be held for {span}: the least is 1 ms")
    return milliseconds


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _state(owner: Any, epoch: Any, expires: Any, now: int) -> LeaseState | None:
    if expires is None or int(expires) <= now:
        return None
    return LeaseState(
        owner=_text(owner),
        epoch=int(epoch or 0),
        remaining=timedelta(milliseconds=int(expires) - now),
    )
