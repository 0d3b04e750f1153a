"""One Celery app with all sample sagas, for workers and for the tests that start executions."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from celery import Celery

import fencepost

SAGAS = "tests.support.apps.sagas"
"""The module whose `ALL` an app knows that asks for no other."""


def make(
    broker: str, conf: Mapping[str, Any], *, sagas: str = SAGAS, **settings: Any
) -> fencepost.Fencepost:
    """Fencepost on a new app.

    Args:
        broker: Redis URL, of the results too.
        conf: Celery settings.
        sagas: The module whose `ALL` it knows.
        **settings: Of Fencepost; what isn't given comes from the environment.
    """
    known = importlib.import_module(sagas).ALL
    app = Celery("sample", broker=broker, backend=broker, set_as_current=False)
    app.conf.update(conf)
    return fencepost.install(app, sagas=known, **settings)
