"""The broker of a demonstration that is in a hurry."""

from __future__ import annotations

import os

from celery import Celery

VISIBILITY_TIMEOUT = "EXAMPLE_VISIBILITY_TIMEOUT"
"""Seconds after which the broker delivers again what a lost worker had received."""


def hurry(app: Celery) -> None:
    """Set a short visibility timeout if the demonstration asks for one."""
    timeout = os.environ.get(VISIBILITY_TIMEOUT)
    if timeout is not None:
        app.conf.broker_transport_options = {
            "visibility_timeout": float(timeout),
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        }
