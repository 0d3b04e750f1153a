"""Loaded by Python at its start: a wall clock that the nemesis steps.

`time.time` is shifted by the seconds in the file that `CHAOS_CLOCK` names. The monotonic clock
and the boot clock stay: no operating system steps those.
"""

from __future__ import annotations

import os
import time

_real = time.time
_path = os.environ.get("CHAOS_CLOCK")
_LOOK_EVERY = 0.05


class _Stepped:
    def __init__(self) -> None:
        self.looked_at = 0.0
        self.offset = 0.0

    def __call__(self) -> float:
        now = time.monotonic()
        if now - self.looked_at > _LOOK_EVERY:
            self.looked_at = now
            try:
                with open(_path or "") as file:  # noqa: PTH123 - pathlib would be loaded everywhere
                    self.offset = float(file.read() or 0)
            except (OSError, ValueError):
                self.offset = 0.0
        return _real() + self.offset


if _path:
    time.time = _Stepped()
