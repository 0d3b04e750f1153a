"""Keeping a lease alive while a step runs, and knowing when it can't be trusted any more."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Self

from fencepost.clock import seconds_alive
from fencepost.errors import ServiceUnavailableError
from fencepost.ports import LeaseStore
from fencepost.records import Lease

logger = logging.getLogger(__name__)

# Renew at a third of the TTL: two lost packets must not cost the lease.
RENEWALS_PER_TTL = 3
RETRIES_PER_TTL = 10


class Heartbeat:
    """Renews a lease from a thread of the process that runs the step.

    A thread and not a timer of the worker: it stops when the process stops, which is the point.

    Args:
        leases: Where the lease is held.
        lease: What is held.
        ttl: Its time to live.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        leases: LeaseStore,
        lease: Lease,
        ttl: timedelta,
        clock: Callable[[], float] = seconds_alive,
    ) -> None:
        self._leases = leases
        self._lease = lease
        self._ttl = ttl
        self._clock = clock
        # Held while the store is asked, so that a renewal and a raised epoch can't cross. What
        # the holder believes is read without it: `lost` must never wait for the network.
        self._asking = threading.Lock()
        self._stop = threading.Event()
        self._lost = False
        self._renew_until: float | None = None
        self._thread: threading.Thread | None = None

    @property
    def lease(self) -> Lease:
        """The lease as last renewed."""
        return self._lease

    def lost(self) -> bool:
        """Whether the holder must count itself lost. Asks nobody."""
        return self._lost or self._clock() >= self._lease.deadline

    def time_left(self) -> float:
        """Seconds until the holder must count itself lost; zero when it must already."""
        return 0.0 if self._lost else max(0.0, self._lease.deadline - self._clock())

    def limit(self, timeout: timedelta | None) -> None:
        """From now on, renew for no longer than this; None for no limit."""
        until = None if timeout is None else self._clock() + timeout.total_seconds()
        self._renew_until = until

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """Around a write that others wait for: meanwhile, renew for no longer than the TTL.

        A connection that has gone silent must not keep the execution from who could go on.
        """
        before, until = self._renew_until, self._clock() + self._ttl.total_seconds()
        self._renew_until = until if before is None else min(before, until)
        try:
            yield
        finally:
            self._renew_until = before

    def raise_epoch(self, epoch: int) -> None:
        """The holder itself has raised its epoch: write it back.

        The lease counts as lost if that fails; SQL decides about every write anyway.
        """
        with self._asking:
            try:
                raised = self._leases.settle(self._lease, epoch, self._ttl)
            except ServiceUnavailableError as problem:
                logger.warning("can't write the raised epoch back: %s", problem)
                raised = None
            if raised is None:
                self._lost = True
            else:
                self._lease = raised

    def __enter__(self) -> Self:
        self._thread = threading.Thread(
            target=self._beat, name=f"fencepost-heartbeat-{self._lease.execution_id}", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Renew no more. What is held stays held until it is released or expires."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        seconds = self._ttl.total_seconds()
        wait = seconds / RENEWALS_PER_TTL
        while not self._stop.wait(wait):
            wait = seconds / (RENEWALS_PER_TTL if self._renew() else RETRIES_PER_TTL)
            if self.lost():
                return

    def _renew(self) -> bool:
        with self._asking:
            now, until = self._clock(), self._renew_until
            if until is not None and now >= until:
                logger.warning(
                    "execution %s: its step or commit takes too long, the lease is renewed no more",
                    self._lease.execution_id,
                )
                self._lost = True
                return False
            try:
                renewed = self._leases.renew(
                    self._lease, self._ttl, restore=now < self._lease.deadline
                )
            except ServiceUnavailableError as problem:
                logger.warning("can't renew the lease: %s", problem)
                return False
            if renewed is None:
                self._lost = True
                return False
            self._lease = renewed
            return True
