"""What every operation of a person asks for, and how it is refused."""

from __future__ import annotations

from uuid import UUID

from fencepost.errors import ExecutionNotFoundError, ExecutionStateError, PayloadError
from fencepost.ports import ExecutionStore
from fencepost.records import Execution

NAME_LIMIT = 255
"""Characters of who decides."""


def said(by: str, why: str) -> None:
    """Check that somebody is named, and a reason.

    Raises:
        PayloadError: One is missing, or the name is too long.
    """
    for name, text in (("by", by), ("why", why)):
        if not text.strip():
            raise PayloadError(f"say {name}: it is kept in the audit trail")
    if len(by) > NAME_LIMIT:
        raise PayloadError(f"by has at most {NAME_LIMIT} characters")


def found(executions: ExecutionStore, execution_id: UUID) -> Execution:
    """The execution's row.

    Raises:
        ExecutionNotFoundError: There is no such execution.
    """
    execution = executions.get(execution_id)
    if execution is None:
        raise ExecutionNotFoundError(execution_id)
    return execution


def wrong_state(
    execution: Execution, why: str, *, following: str | None = None
) -> ExecutionStateError:
    """The error of an operation that an execution's state doesn't allow.

    Args:
        execution: Whose.
        why: In words that go on after "execution ... is parked: ".
        following: The command to type next.
    """
    return ExecutionStateError(
        f"execution {execution.execution_id} is {execution.status}: {why}",
        execution_id=str(execution.execution_id),
        status=str(execution.status),
        next=following,
    )
