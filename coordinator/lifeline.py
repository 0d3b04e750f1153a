"""Workers that a scenario has started end with it, however hard it ends.

A scenario freezes and kills its own workers. Were it killed itself, a frozen one would stay.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

from celery import signals

ENVIRONMENT = "FACTORY_PARENT_PID"
_PR_SET_PDEATHSIG = 1


def hold() -> None:
    """Tie this process and its pool to the process that `FACTORY_PARENT_PID` names, if any."""
    parent = os.environ.get(ENVIRONMENT)
    if parent is None:
        return
    _end_with(int(parent))

    def in_pool_process(**_: Any) -> None:
        _end_with(os.getppid())

    signals.worker_process_init.connect(in_pool_process, weak=False)


def _end_with(parent: int) -> None:
    # Only Linux can do this; elsewhere, and by Celery's own means, a pool that runs ends with
    # its worker's main process all the same.
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It ended before the line above: no signal will come.
        os.kill(os.getpid(), signal.SIGKILL)
