"""One Celery app with all sample sagas, for workers and for the tests that start executions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Celery

import fencepost
from tests.support.apps import sagas


def make(broker: str, conf: Mapping[str, Any], **settings: Any) -> fencepost.Fencepost:
    """Fencepost on a new app.

    Args:
        broker: Redis URL, of the results too.
        conf: Celery settings.
        **settings: Of Fencepost; what isn't given comes from the environment.
    """
    app = Celery("sample", broker=broker, backend=broker, set_as_current=False)
    app.conf.update(conf)
    return fencepost.install(app, sagas=sagas.ALL, **settings)
