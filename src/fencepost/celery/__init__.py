"""Fencepost on Celery: one call makes any app's fleet run sagas."""

from fencepost.celery.application import Fencepost, current, install, installed_on, start
from fencepost.celery.handle import Handle
from fencepost.celery.hardening import SETTINGS_RULES, check_settings
from fencepost.celery.queues import (
    QUEUE_RULES,
    check_queues,
    declared_queues,
    served_queues,
    usual_queue,
)

__all__ = [
    "QUEUE_RULES",
    "SETTINGS_RULES",
    "Fencepost",
    "Handle",
    "check_queues",
    "check_settings",
    "current",
    "declared_queues",
    "install",
    "installed_on",
    "served_queues",
    "start",
    "usual_queue",
]
