"""The coordinator without any server."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's environment decides about a test."""
    for name in list(os.environ):
        if name.startswith(("FENCEPOST_", "FACTORY_", "OPENAI_")):
            monkeypatch.delenv(name)
