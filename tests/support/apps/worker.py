"""A Celery app with all sample sagas: `celery -A tests.support.apps.worker worker`.

Environment: `SAMPLE_BROKER` is the Redis URL of the broker and of the results, `SAMPLE_CONF` has
more Celery settings as JSON; Fencepost reads its own.
"""

from __future__ import annotations

import json
import os

from tests.support.apps.composition import make

fp = make(os.environ["SAMPLE_BROKER"], json.loads(os.environ.get("SAMPLE_CONF", "{}")))
app = fp.app
