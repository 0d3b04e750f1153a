"""What people do with executions in a world, and the messages that follow from it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fencepost.engine import Engine
from fencepost.engine.operations import Operations, Sent
from fencepost.records import Execution, Status
from fencepost.saga import Signal

BY = {"by": "ada", "why": "as the scenario has it"}


class People:
    """The operations of `Fencepost`, as a user's process does them.

    Args:
        engine: A user's.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._operations = Operations(engine.executions, engine.effects, engine.registry.find)

    def cancel(self, execution_id: UUID) -> None:
        """Have it undo its work."""
        self._dispatch(self._operations.cancel(execution_id, **BY))

    def pause(self, execution_id: UUID) -> None:
        """Have nothing more of it begun."""
        self._operations.pause(execution_id, **BY)

    def resume(self, execution_id: UUID) -> None:
        """Lift the pause."""
        for execution in self._operations.resume(execution_id, **BY):
            self._engine.dispatch(execution)

    def retry(self, execution_id: UUID) -> None:
        """Let it go on that is parked or has failed."""
        self._dispatch(self._operations.retry(execution_id, **BY))

    def skip(self, execution_id: UUID) -> None:
        """Leave the step as it is at which it is parked."""
        self._dispatch(self._operations.skip(execution_id, **BY))

    def signal(self, execution_id: UUID, signal: Signal[Any], payload: Any, **options: Any) -> None:
        """Send a signal."""
        self._wake(self._operations.signal(execution_id, signal, payload, **options))

    def approve(self, execution_id: UUID, name: str) -> None:
        """Say yes."""
        self._wake(self._operations.approve(execution_id, name, **BY))

    def reject(self, execution_id: UUID, name: str) -> None:
        """Say no."""
        self._wake(self._operations.reject(execution_id, name, **BY))

    def _dispatch(self, execution: Execution) -> None:
        if execution.status is Status.ACTIVE and execution.paused_at is None:
            self._engine.dispatch(execution)

    def _wake(self, sent: Sent) -> None:
        if sent.wanted_now:
            self._engine.dispatch(sent.execution)
