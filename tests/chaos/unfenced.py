"""The guards off, for `--unfenced` only: to show that the checker notices.

The coordinator's demonstration has stores that refuse nothing; here the intents of effects are
let through, too.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from coordinator.unfenced import UnfencedFencepost, UnfencedLeaseStore
from fencepost.ports import LeaseStore
from fencepost.records import Lease
from fencepost.stores.sql import effects

A_YEAR = 365 * 24 * 3600.0
"""Seconds. Effects count on a deadline that can be subtracted from."""


def _anybody(_connection: Any, _token: Any) -> bool:
    return True


class _Trusting(UnfencedLeaseStore):
    """Leases that their holders believe in for a year."""

    def acquire(self, *given: Any) -> Lease | None:
        """Take a lease that is free or expired."""
        return _for_a_year(super().acquire(*given))

    def settle(self, *given: Any) -> Lease | None:
        """Write the epoch back."""
        return _for_a_year(super().settle(*given))

    def renew(self, *given: Any, **how: Any) -> Lease | None:
        """Extend the lease."""
        return _for_a_year(super().renew(*given, **how))


def _for_a_year(lease: Lease | None) -> Lease | None:
    return None if lease is None else replace(lease, deadline=time.monotonic() + A_YEAR)


class UnfencedShop(UnfencedFencepost):
    """Fencepost over stores that refuse nothing, and record effects for anybody."""

    def open_leases(self) -> LeaseStore:
        """A lease store whose holders never doubt."""
        return _Trusting(super().open_leases())

    def _make_engine(self) -> Any:
        effects._owns = _anybody  # type: ignore[assignment] # as exploration's mutants do
        return super()._make_engine()
