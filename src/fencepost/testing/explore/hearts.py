"""A heartbeat without a thread: it beats when time goes by, unless its owner is frozen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Self

from fencepost.engine.heartbeat import RENEWALS_PER_TTL, Heartbeat
from fencepost.ports import LeaseStore
from fencepost.records import Lease
from fencepost.testing.explore.scheduler import Task


class StillHeart(Heartbeat):
    """Renews when `beat` is called.

    Args:
        leases: The store itself, not the scheduled one: a beat is one atomic step.
        lease: What is held.
        ttl: Its time to live.
        clock: The world's.
        owner: The task that holds it.
        point: A scheduling point.
        left: Told when it beats no more.
    """

    def __init__(
        self,
        leases: LeaseStore,
        lease: Lease,
        ttl: timedelta,
        clock: Callable[[], float],
        *,
        owner: Task,
        point: Callable[[str], object],
        left: Callable[[StillHeart], None],
    ) -> None:
        super().__init__(leases, lease, ttl, clock)
        self.owner = owner
        self._point = point
        self._left = left
        self.next_beat = clock() + ttl.total_seconds() / RENEWALS_PER_TTL

    def __enter__(self) -> Self:
        return self

    def raise_epoch(self, epoch: int) -> None:
        """See `Heartbeat.raise_epoch`."""
        self._point("leases.settle(raised epoch)")
        super().raise_epoch(epoch)

    def stop(self) -> None:
        """Renew no more."""
        self._left(self)

    def beat(self) -> None:
        """Renew, as the thread would; a frozen owner's heart doesn't."""
        self.next_beat = self._clock() + self._ttl.total_seconds() / RENEWALS_PER_TTL
        if self.owner.ready and not self.lost():
            self._renew()
