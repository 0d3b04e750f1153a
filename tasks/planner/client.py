"""The one OpenAI client of the planner; offline, only its transport differs."""

from __future__ import annotations

import httpx2
from openai import OpenAI

from tasks.planner.offline import OfflineTransport
from tasks.planner.settings import PlannerSettings

CONNECT_SECONDS = 10.0


def connect(settings: PlannerSettings, *, transport: httpx2.BaseTransport | None = None) -> OpenAI:
    """Build the client.

    Args:
        settings: Where the model is. Offline, no socket is ever opened.
        transport: Replaces the transport that the settings call for.

    Returns:
        A client that the caller closes (it is a context manager).
    """
    if transport is None and settings.mode == "offline":
        transport = OfflineTransport()
    timeout = httpx2.Timeout(settings.timeout, connect=min(settings.timeout, CONNECT_SECONDS))
    return OpenAI(
        api_key=settings.api_key.get_secret_value(),
        base_url=settings.base_url,
        timeout=timeout,
        max_retries=settings.max_retries,
        # A redirect could carry the conversation to a host that nobody chose.
        http_client=httpx2.Client(transport=transport, timeout=timeout, follow_redirects=False),
    )


def without_secret(text: str, settings: PlannerSettings) -> str:
    """The text with the key blotted out: some servers repeat it in their errors."""
    secret = settings.api_key.get_secret_value()
    return text.replace(secret, "[key]") if secret else text
