"""Imported by a demonstration's Celery app: its workers end with the demonstration.

`EXAMPLE_PARENT` is the demonstration's pid; without it nothing happens.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from celery.signals import worker_init

PARENT = "EXAMPLE_PARENT"


@worker_init.connect
def end_with_parent(**_: Any) -> None:
    """Leave no worker behind when the demonstration is killed."""
    parent = os.environ.get(PARENT)
    if parent is not None:
        threading.Thread(target=_watch, args=(int(parent),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(os.getpgrp(), signal.SIGKILL)
