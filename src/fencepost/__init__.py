"""Fencepost makes Celery fleets safe to retry."""

from fencepost._version import __version__

__all__ = ["__version__"]
