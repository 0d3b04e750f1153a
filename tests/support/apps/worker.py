"""A Celery app with all sample sagas: `celery -A tests.support.apps.worker worker`.

Environment: `SAMPLE_BROKER` is the Redis URL of the broker and of the results, `SAMPLE_CONF` has
more Celery settings as JSON, `SAMPLE_SAGAS` names the module with the sagas; Fencepost reads its
own.
"""

from __future__ import annotations

import json
import os

from tests.support.apps.composition import SAGAS, make

fp = make(
    os.environ["SAMPLE_BROKER"],
    json.loads(os.environ.get("SAMPLE_CONF", "{}")),
    sagas=os.environ.get("SAMPLE_SAGAS", SAGAS),
)
app = fp.app
