"""The lease store in memory: what Redis does, by a clock that a test can move."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from fencepost.clock import seconds_alive
from fencepost.records import Lease, LeaseState


@dataclass(slots=True)
class _Entry:
    owner: str | None = None
    epoch: int = 0
    expires: float = float("-inf")


class MemoryLeaseStore:
    """Leases of one process. Thread-safe.

    Args:
        clock: In seconds; decides expiry and, unless `holder_clock` is given, local deadlines.
        holder_clock: The holders' monotonic clock, if it is another one.
        margin: The part of the time to live by which a holder trusts its lease less.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = seconds_alive,
        holder_clock: Callable[[], float] | None = None,
        margin: float = 0.1,
    ) -> None:
        self._clock = clock
        self._holder_clock = holder_clock or clock
        self._margin = margin
        self._mutex = threading.Lock()
        self._entries: dict[UUID, _Entry] = {}
        self._look_at: dict[UUID, float] = {}

    def acquire(self, execution_id: UUID, owner: str, ttl: timedelta) -> Lease | None:
        """Take the lease if it is free or expired, proposing the next epoch."""
        asked_at = self._holder_clock()
        with self._mutex:
            entry = self._entries.setdefault(execution_id, _Entry())
            if entry.expires > self._clock():
                return None
            entry.owner = owner
            self._extend(execution_id, entry, ttl)
            return self._lease(execution_id, entry, entry.epoch + 1, asked_at, ttl)

    def settle(self, lease: Lease, epoch: int, ttl: timedelta) -> Lease | None:
        """Write back the epoch that SQL has decided, and renew. None if the lease is lost."""
        return self._hold(lease, epoch, ttl, restore=False)

    def renew(self, lease: Lease, ttl: timedelta, *, restore: bool) -> Lease | None:
        """Extend the lease if it is still live and ours; see the port for `restore`."""
        return self._hold(lease, lease.epoch, ttl, restore=restore)

    def release(self, lease: Lease, *, forget: bool) -> bool:
        """Give the lease up if it is ours. `forget` drops the epoch too (execution ended)."""
        with self._mutex:
            entry = self._entries.get(lease.execution_id)
            if entry is None or entry.owner != lease.owner:
                return False
            self._look_at.pop(lease.execution_id, None)
            if forget or entry.epoch == 0:
                del self._entries[lease.execution_id]
            else:
                self._entries[lease.execution_id] = _Entry(epoch=entry.epoch)
            return True

    def state(self, execution_ids: Sequence[UUID]) -> list[LeaseState | None]:
        """For each execution its live lease, or None."""
        with self._mutex:
            return [self._state(execution_id) for execution_id in execution_ids]

    def claim_expired(self, limit: int, hold: timedelta) -> list[UUID]:
        """Executions whose lease has expired, each hidden from other claimants for `hold`."""
        with self._mutex:
            now = self._clock()
            due = sorted((at, id_) for id_, at in self._look_at.items() if at <= now)
            claimed = [execution_id for _, execution_id in due[:limit]]
            for execution_id in claimed:
                self._look_at[execution_id] = now + hold.total_seconds()
            return claimed

    def discard(self, execution_ids: Iterable[UUID]) -> None:
        """Forget executions that have ended, unless somebody holds a live lease on them."""
        with self._mutex:
            for execution_id in execution_ids:
                if self._state(execution_id) is None:
                    self._entries.pop(execution_id, None)
                    self._look_at.pop(execution_id, None)

    def entries(self) -> list[tuple[UUID, str | None, int, float]]:
        """All that is remembered: execution, owner (None: released), settled epoch, expiry."""
        with self._mutex:
            known = self._entries.items()
            return [(id_, entry.owner, entry.epoch, entry.expires) for id_, entry in known]

    def next_look(self) -> float | None:
        """When `claim_expired` has something to tell next, if nothing changes until then."""
        with self._mutex:
            return min(self._look_at.values(), default=None)

    def flush(self) -> None:
        """Lose everything at once, as FLUSHALL or a failover to an empty replica does."""
        with self._mutex:
            self._entries.clear()
            self._look_at.clear()

    def _hold(self, lease: Lease, epoch: int, ttl: timedelta, *, restore: bool) -> Lease | None:
        asked_at = self._holder_clock()
        with self._mutex:
            entry = self._entries.get(lease.execution_id)
            if entry is None and restore:
                entry = self._entries[lease.execution_id] = _Entry(lease.owner, 0, float("inf"))
            if entry is None or entry.owner != lease.owner or entry.epoch > epoch:
                return None
            if entry.expires <= self._clock():
                return None
            entry.epoch = epoch
            self._extend(lease.execution_id, entry, ttl)
            return self._lease(lease.execution_id, entry, epoch, asked_at, ttl)

    def _extend(self, execution_id: UUID, entry: _Entry, ttl: timedelta) -> None:
        entry.expires = self._clock() + ttl.total_seconds()
        self._look_at[execution_id] = entry.expires

    def _lease(
        self, execution_id: UUID, entry: _Entry, epoch: int, asked_at: float, ttl: timedelta
    ) -> Lease:
        assert entry.owner is not None
        deadline = asked_at + ttl.total_seconds() * (1 - self._margin)
        return Lease(execution_id, entry.owner, epoch, deadline)

    def _state(self, execution_id: UUID) -> LeaseState | None:
        entry = self._entries.get(execution_id)
        if entry is None or entry.owner is None:
            return None
        remaining = entry.expires - self._clock()
        if remaining <= 0:
            return None
        return LeaseState(entry.owner, entry.epoch, timedelta(seconds=remaining))
