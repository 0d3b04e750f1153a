"""A started execution, seen from the caller."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from fencepost import serde
from fencepost.engine import Outcome
from fencepost.engine.core import outcome_of
from fencepost.errors import ExecutionFailedError, ExecutionNotFoundError
from fencepost.records import Execution, Status

if TYPE_CHECKING:
    from fencepost.celery.operating import Operating

Out = TypeVar("Out")

FIRST_POLL = 0.02
LONGEST_POLL = 0.5


class Handle(Generic[Out]):
    """Refers to an execution by its id; asks SQL, never Celery.

    Attributes:
        execution_id: The execution's id.
        created: Whether this start made it; False when a business key found it.
    """

    def __init__(
        self, fencepost: Operating, execution_id: UUID, output_type: Any, *, created: bool
    ) -> None:
        self._fencepost = fencepost
        self.execution_id = execution_id
        self.created = created
        self._output_type = output_type

    def status(self) -> Status:
        """The execution's status now.

        Raises:
            ExecutionNotFoundError: It isn't (or not yet) committed.
        """
        return self._read(self.execution_id).status

    def wait(self, timeout: float | None = None) -> Outcome:
        """Wait until the execution, or what continues it, has ended or is parked.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            TimeoutError: It is still under way; it goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        poll, execution_id = FIRST_POLL, self.execution_id
        while True:
            execution = self._read(execution_id)
            if execution.status is Status.CONTINUED:
                execution_id = UUID(execution.result["continued_as"])
                continue
            if execution.status.ended or execution.status is Status.PARKED:
                return outcome_of(execution)
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"execution {execution_id} is {execution.status}")
            time.sleep(poll if left is None else min(poll, left))
            poll = min(poll * 1.5, LONGEST_POLL)

    def result(self, timeout: float | None = None) -> Out:
        """Wait for the result.

        Raises:
            ExecutionFailedError: It ended otherwise, or is parked.
            TimeoutError: It is still under way.
        """
        outcome = self.wait(timeout)
        if outcome.status is not Status.SUCCEEDED:
            error = outcome.error or {}
            raise ExecutionFailedError(
                f"execution {outcome.execution_id} is {outcome.status}:"
                f" {error.get('message', 'no error recorded')}",
                execution_id=str(outcome.execution_id),
                status=str(outcome.status),
                error=error,
            )
        value: Out = serde.load(outcome.result, self._output_type, what="result")
        return value

    def _read(self, execution_id: UUID) -> Execution:
        execution = self._fencepost.engine.executions.get(execution_id)
        if execution is None:
            raise ExecutionNotFoundError(execution_id)
        return execution
