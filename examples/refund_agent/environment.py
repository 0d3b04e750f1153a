"""What both apps read from the environment.

| variable | meaning |
|---|---|
| `REFUND_BROKER` | Redis URL of Celery's broker |
| `REFUND_ORDERS` | folder of the shop's orders |
| `REFUND_PROVIDER_<MODE>` | URL of each provider |
| `REFUND_VISIBILITY_TIMEOUT` | seconds until the broker delivers again; by default Celery's hour |
| `EXAMPLE_PARENT` | pid of the demonstration; its workers end with it |
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from examples.refund_agent.payments import Payments
from examples.refund_agent.shop import Orders
from examples.support import parent  # noqa: F401 - ends the workers with the demonstration


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
