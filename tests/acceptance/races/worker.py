"""Workers of the raced shop: `celery -A tests.acceptance.races.worker worker`.

Environment: `RACES_BROKER` is the Redis URL, `RACES_BANKS` has the providers; Fencepost reads its
own. The visibility timeout is as short as Fencepost lets it be, and shorter than a slow call.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

import fencepost
from tests.acceptance.races import books, shop, stories

VISIBILITY = 2


def make(broker: str, **settings: Any) -> fencepost.Fencepost:
    """Fencepost on a new app, for workers and for the test that starts executions."""
    app = Celery("races", broker=broker, backend=broker, set_as_current=False)
    app.conf.update(
        broker_transport_options={
            "visibility_timeout": VISIBILITY,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        }
    )
    sagas = [*shop.refunds.values(), *stories.ALL, *books.ALL]
    return fencepost.install(app, sagas=sagas, **settings)


if "RACES_BROKER" in os.environ:
    fp = make(os.environ["RACES_BROKER"])
    app = fp.app
