"""What lies in a queue on Redis, where each step of priority has a list of its own."""

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
