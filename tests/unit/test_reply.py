"""What Celery puts into its logs and events about an execution's end."""

from uuid import uuid4

import pytest
from celery.utils.saferepr import saferepr

from fencepost.celery.hardening import TASK_OPTIONS
from fencepost.celery.task import reply_of
from fencepost.engine import Outcome
from fencepost.records import ENDED, Status


@pytest.mark.parametrize("status", sorted(ENDED))
def test_no_result_and_no_error_reaches_logs_and_events(status: Status) -> None:
    outcome = Outcome(uuid4(), status, {"card": "4242"}, {"message": "card 4242 declined"})
    shown = saferepr(reply_of(outcome), TASK_OPTIONS["resultrepr_maxsize"])
    assert str(outcome.execution_id) in shown
    assert status[:3] in shown
    assert "4242" not in shown
    assert "declined" not in shown
