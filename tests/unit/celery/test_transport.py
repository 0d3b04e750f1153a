"""A broker that doesn't take a message is told apart from an error of ours."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from celery import Celery
from kombu.exceptions import OperationalError

from fencepost.celery.transport import CeleryTransport
from fencepost.errors import ServiceUnavailableError
from fencepost.records import Execution, Phase, Status

ID = UUID(int=1)

execution = Execution(
    execution_id=ID,
    saga="line",
    version="1",
    business_key=None,
    lineage_id=ID,
    root_id=ID,
    parent_id=None,
    parent_step=None,
    parent_visit=None,
    child_index=None,
    status=Status.ACTIVE,
    phase=Phase.FORWARD,
    epoch=0,
    owner=None,
    head=ID,
    head_seq=0,
    recoveries=0,
    attempt=0,
    max_concurrency=None,
    input=None,
    result=None,
    error=None,
    parked_reason=None,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    ended_at=None,
)


class Publisher:
    """Stands for the Celery task, whose publishing fails."""

    def __init__(self, problem: Exception) -> None:
        self._problem = problem

    def apply_async(self, *_: Any, **__: Any) -> None:
        raise self._problem


@pytest.mark.parametrize(
    "problem",
    [
        OperationalError("no connection"),
        ConnectionResetError("reset"),
        # What kombu raises where another thread has just closed the connection that both share.
        AttributeError("'NoneType' object has no attribute 'client'"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_a_broker_in_trouble(problem: Exception) -> None:
    publisher: Any = Publisher(problem)
    transport = CeleryTransport(Celery(set_as_current=False), publisher, publisher)
    with pytest.raises(ServiceUnavailableError, match="the broker doesn't take messages"):
        transport.dispatch(execution)


def test_an_error_of_ours_is_none_of_the_brokers() -> None:
    publisher: Any = Publisher(TypeError("not serializable"))
    transport = CeleryTransport(Celery(set_as_current=False), publisher, publisher)
    with pytest.raises(TypeError):
        transport.dispatch(execution)
