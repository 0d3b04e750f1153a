"""The pipeline's Celery app: `celery -A examples.data_pipeline.app worker`.

The broker is in `CELERY_BROKER_URL`, the database in `FENCEPOST_DATABASE_URL`.
"""

from __future__ import annotations

import os

from celery import Celery

import fencepost
from examples.data_pipeline.saga import load_day
from examples.support import parent  # noqa: F401 - ends the workers with the demonstration
from examples.support.broker import hurry

broker = os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0")
app = Celery("pipeline", broker=broker, backend=broker, set_as_current=False)
hurry(app)
fp = fencepost.install(app, sagas=[load_day])
