from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.operating.office import DONE, SAGAS, TROUBLE, Office
from tests.support.inline import Inline


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: Any) -> Iterator[Inline]:
    TROUBLE.clear()
    DONE.clear()
    fleet = Inline(request.getfixturevalue(f"{request.param}_url"), SAGAS)
    yield fleet
    fleet.close()


@pytest.fixture
def office(fleet: Inline) -> Office:
    return Office(fleet)
