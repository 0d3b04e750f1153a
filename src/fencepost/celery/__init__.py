"""Fencepost on Celery: one call makes any app's fleet run sagas."""

from fencepost.celery.application import Fencepost, current, install, installed_on, start
from fencepost.celery.handle import Handle
from fencepost.celery.hardening import Finding, Severity, check_settings

__all__ = [
    "Fencepost",
    "Finding",
    "Handle",
    "Severity",
    "check_settings",
    "current",
    "install",
    "installed_on",
    "start",
]
