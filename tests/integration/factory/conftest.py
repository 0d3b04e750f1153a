"""Ledgers on both databases, and stores of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

import ledger
from fencepost.stores.sql import migrate
from tests.integration.factory.fleet import Fleet


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def ledger_url(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A migrated database that the settings name, with empty stores beside it."""
    monkeypatch.setenv("FENCEPOST_DATABASE_URL", database_url)
    monkeypatch.setenv("FACTORY_STAGING_DIR", str(tmp_path / "staging"))
    monkeypatch.setenv("FACTORY_PUBLISH_DIR", str(tmp_path / "published"))
    migrate(database_url)
    ledger.migrate(database_url)
    return database_url


@pytest.fixture
def fleet(ledger_url: str) -> Fleet:
    """Workers on that database."""
    return Fleet(ledger_url)
