"""What both apps read from the environment.

| variable | meaning |
|---|---|
| `REFUND_BROKER` | Redis URL of Celery's broker |
| `REFUND_ORDERS` | folder of the shop's orders |
| `REFUND_PROVIDER_<MODE>` | URL of each provider |
| `REFUND_VISIBILITY_TIMEOUT` | seconds until the broker delivers again; by default Celery's hour |
| `REFUND_PARENT` | pid of the demonstration; its workers end with it |
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from celery.signals import worker_init

from examples.refund_agent.payments import Payments
from examples.refund_agent.shop import Orders

PARENT = "REFUND_PARENT"


def broker() -> str:
    """Redis URL of the broker."""
    return os.environ.get("REFUND_BROKER", "redis://localhost:6379/0")


def broker_options() -> dict[str, Any]:
    """The broker's settings: the same for both apps."""
    timeout = os.environ.get("REFUND_VISIBILITY_TIMEOUT")
    if timeout is None:
        return {"visibility_timeout": 3600}
    return {
        "visibility_timeout": float(timeout),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }


def orders() -> Orders:
    """The shop's orders."""
    return Orders(Path(os.environ.get("REFUND_ORDERS", "orders")))


def payments(provider: str) -> Payments:
    """A client for a provider, by its mode."""
    return Payments(os.environ[f"REFUND_PROVIDER_{provider.upper()}"])


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
