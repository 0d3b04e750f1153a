"""`celery -A tests.chaos.worker worker`: the fleet's app, set up by the environment."""

from __future__ import annotations

import json
import os

from tests.chaos.shop import make

fp = make(os.environ["CHAOS_BROKER"], json.loads(os.environ.get("CHAOS_CONF", "{}")))
app = fp.app
