"""A flag that a worker's main process raises and its pool children read."""

from __future__ import annotations

import mmap


class DrainFlag:
    """One byte of anonymous shared memory: made before the pool forks, so all see the same."""

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)

    def raise_(self) -> None:
        """The worker is shutting down."""
        self._byte[0] = 1

    def lower(self) -> None:
        """The worker has (re)started."""
        self._byte[0] = 0

    def __call__(self) -> bool:
        """Whether the worker is shutting down."""
        return self._byte[0] == 1
