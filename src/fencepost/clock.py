"""The clock on which a holder counts how long it may trust its lease."""

from __future__ import annotations

import time


def seconds_alive() -> float:
    """Seconds from a fixed point, never set back, and counting while the machine sleeps.

    `time.monotonic` stands still during suspend on Linux: a holder on a laptop that was closed,
    or on a suspended virtual machine, would trust a lease that ran out hours ago.
    """
    return time.clock_gettime(_CLOCK)


# On macOS it is CLOCK_MONOTONIC that counts on (clock_gettime(3)), and there is no BOOTTIME.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
