"""One finished run on each database, and copies of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.testing import PostgresServer
from tests.integration.verify.copies import Copy, Original
from tests.integration.verify.journeys import SAGAS, Journeys
from tests.integration.verify.story import release, tell
from tests.support.inline import Inline


def _told(url: str) -> Original:
    fleet = Inline(url, [release])
    try:
        return Original.of(fleet, {"story": tell(fleet)})
    finally:
        fleet.close()


def _travelled(url: str) -> Original:
    fleet = Inline(url, SAGAS)
    try:
        return Original.of(fleet, Journeys(fleet).all())
    finally:
        fleet.close()


@pytest.fixture(scope="session")
def sqlite_story(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return _told(f"sqlite:///{tmp_path_factory.mktemp('story') / 'story.sqlite3'}")


@pytest.fixture(scope="session")
def postgres_story(postgres_server: PostgresServer) -> Original:
    postgres_server.start()
    return _told(postgres_server.create_database("verify_story"))


@pytest.fixture(scope="session")
def sqlite_journeys(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return _travelled(f"sqlite:///{tmp_path_factory.mktemp('journeys') / 'journeys.sqlite3'}")


@pytest.fixture(scope="session")
def postgres_journeys(postgres_server: PostgresServer) -> Original:
    postgres_server.start()
    return _travelled(postgres_server.create_database("verify_journeys"))


@pytest.fixture(scope="session")
def postgres_copy_url(postgres_server: PostgresServer) -> str:
    """One database for all copies: making one takes longer than a test."""
    postgres_server.start()
    return postgres_server.create_database("verify_copy")


def _copied(request: Any, of: str) -> Iterator[Copy]:
    original: Original = request.getfixturevalue(f"{request.param}_{of}")
    postgres = request.param == "postgres"
    url = request.getfixturevalue("postgres_copy_url" if postgres else "sqlite_url")
    made = original.copy_to(url)
    yield made
    made.engine.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def copy(request: Any) -> Iterator[Copy]:
    """A copy of the finished run, to be broken."""
    yield from _copied(request, "story")


@pytest.fixture(params=["sqlite", "postgres"])
def travelled(request: Any) -> Iterator[Copy]:
    """A copy of the journeys, to be broken."""
    yield from _copied(request, "journeys")
