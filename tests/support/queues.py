"""The broker on Redis: what lies in a queue, and when what was taken comes back."""

from __future__ import annotations

from typing import Any

from kombu.transport.redis import Channel


def lists(queue: str) -> list[str]:
    """The keys of a queue, the most urgent first."""
    steps = [step for step in Channel.priority_steps if step]
    return [queue, *(f"{queue}{Channel.sep}{step}" for step in steps)]


def messages(client: Any, queue: str = "celery") -> list[str]:
    """The messages that no worker has taken, whatever their priority."""
    return [message for key in lists(queue) for message in client.lrange(key, 0, -1)]


def redelivered_after(seconds: int, **more: int) -> dict[str, Any]:
    """Celery settings with which messages that were taken and not acked come back soon.

    Args:
        seconds: The visibility timeout.
        **more: Other transport options.
    """
    restoring = {"unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    return {"broker_transport_options": {"visibility_timeout": seconds, **restoring, **more}}
