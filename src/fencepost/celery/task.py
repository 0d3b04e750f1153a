"""The two Celery tasks: one runs an execution, one is the body of every chord."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from uuid import UUID

from celery import Celery
from celery.app.task import Task
from celery.exceptions import Ignore

from fencepost.celery.hardening import TASK_OPTIONS
from fencepost.engine import Outcome
from fencepost.errors import Suspended

if TYPE_CHECKING:
    from fencepost.celery.application import Fencepost

logger = logging.getLogger(__name__)

RUN = "fencepost.run"
JOIN = "fencepost.join"


def register_tasks(app: Celery, fencepost: Fencepost) -> tuple[Task[..., Any], Task[..., Any]]:
    """Register both tasks on the app."""

    def run(execution_id: str, queue: str | None = None) -> dict[str, Any]:
        """Carry an execution as far as it can go on the queue that the message was sent to."""
        try:
            return reply_of(fencepost.engine.run(UUID(execution_id), queue))
        except Suspended as suspended:
            logger.info("%s", suspended.reason)
            raise Ignore(suspended.reason) from None
        except Exception as problem:
            # Never a failed Celery task: the first result of a chord part wins, and this may be
            # the copy that no longer counts. The execution is still owed, and SQL knows it.
            logger.exception("execution %s could not be run", execution_id)
            raise Ignore(str(problem)) from None

    def join(parent_id: str) -> None:
        """A chord has called back: a hint that its parent may go on."""
        engine = fencepost.engine
        execution = engine.executions.get(UUID(parent_id))
        if execution is not None and not execution.status.ended:
            engine.dispatch(execution)

    declare: Any = app.task  # its stubs know neither the newer options nor the return type
    # Not shared: Celery would give these to every other app of the process, and another app's
    # own tasks of these names would then not be registered.
    options = TASK_OPTIONS | {"shared": False}
    return declare(name=RUN, **options)(run), declare(name=JOIN, **options)(join)


def reply_of(outcome: Outcome) -> dict[str, Any]:
    """An execution's end as its task's result, what may be confidential last."""
    # `TASK_OPTIONS` has Celery cut its logs and events after the first two.
    return {
        "execution_id": str(outcome.execution_id),
        "status": str(outcome.status),
        "result": outcome.result,
        "error": outcome.error,
    }
