"""`celery -A tests.acceptance.effects.worker worker`; the broker is `SHOP_BROKER`."""

from __future__ import annotations

import os

from tests.acceptance.effects.shop import make

fp = make(os.environ["SHOP_BROKER"])
app = fp.app
