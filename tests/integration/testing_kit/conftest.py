"""Small projects of users, run by pytest with the plugin as it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.testing import wait_for
from tests.support.leftovers import left_by

APP = """
from celery import Celery

import fencepost
from fencepost import Saga, faults, step

app = Celery("sums", broker="redis://nowhere:1/0", backend="redis://nowhere:1/0")


@app.task
def add(x, y):
    return x + y


@step
def one(x: int) -> int:
    return x + 1


@step
def two(x: int) -> int:
    faults.reach("sums.doubling", x=x)
    return x * 2


sums = Saga("sums", input=int).then(one).then(two)
fp = fencepost.install(app, sagas=[sums])
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> Iterator[pytest.Pytester]:
    """A folder with an app; whatever runs in it has to have ended afterwards."""
    pytester.makepyfile(sums_app=APP)
    yield pytester
    assert nothing_left(pytester.path)


def nothing_left(folder: Path) -> bool:
    """Whether all processes end that belong to a project."""
    wait_for(lambda: not left_by(folder), 60, lambda: f"the end of {left_by(folder)}")
    return True
