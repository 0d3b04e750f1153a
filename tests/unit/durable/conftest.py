"""A fleet in this process that knows the tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.support.inline import Inline
from tests.unit.durable.support import job, ran, retried


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@pytest.fixture
def fleet(sqlite_url: str) -> Iterator[Inline]:
    fleet = Inline(sqlite_url, [job, retried])
    with fleet.database.begin() as connection:
        connection.execute(sa.text("CREATE TABLE booked (cents INTEGER)"))
    yield fleet
    fleet.close()
