"""The two apps as the demonstration drives them: start, start again, see how it ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import redis
from celery import Celery
from celery.result import AsyncResult

from examples.refund_agent.provider import Mode
from examples.refund_agent.shop import Complaint, Order
from examples.support.fleet import Fleet
from fencepost import Fencepost, Status
from fencepost.agents import AgentResult


@dataclass
class Case:
    """One cell: a customer's complaint at one provider.

    Attributes:
        task_id: Of the Celery task, and for Fencepost of the execution.
    """

    mode: Mode
    order: Order
    complaint: Complaint
    task_id: str = ""


@dataclass(frozen=True)
class Ending:
    """How a case ended, as its app knows it.

    Attributes:
        state: `succeeded`, `failed`, `parked`.
        told: What the customer is told, or why nobody told them anything.
    """

    state: str
    told: str


class Side(ABC):
    """An app with its fleet and its broker.

    Args:
        name: `plain` or `fencepost`.
        broker: Redis URL.
        fleet: Its workers.
    """

    def __init__(self, name: str, broker: str, fleet: Fleet) -> None:
        self.name = name
        self.fleet = fleet
        self._redis = redis.Redis.from_url(broker)

    @abstractmethod
    def start(self, case: Case) -> None:
        """Publish the complaint."""

    @abstractmethod
    def deliver_again(self, case: Case) -> None:
        """Publish a second copy of its message."""

    @abstractmethod
    def ending(self, case: Case) -> Ending | None:
        """How it ended; None while it goes on."""

    def quiet(self) -> bool:
        """Whether the broker holds no message, delivered or not."""
        queued: int = self._redis.llen("celery")
        unacked: int = self._redis.hlen("unacked")
        return not queued and not unacked

    def close(self) -> None:
        """End the connections."""
        self._redis.close()


class PlainSide(Side):
    """Drives `plain_app`."""

    def __init__(self, broker: str, fleet: Fleet) -> None:
        super().__init__("plain", broker, fleet)
        self._app = Celery("starter", broker=broker, backend=broker, set_as_current=False)

    def start(self, case: Case) -> None:
        """See `Side.start`. A caller who tries twice uses the same task id."""
        case.task_id = case.complaint.id
        self.deliver_again(case)

    def deliver_again(self, case: Case) -> None:
        """See `Side.deliver_again`."""
        complaint = case.complaint.model_dump(mode="json")
        self._app.send_task("handle_complaint", (complaint,), task_id=case.task_id)

    def ending(self, case: Case) -> Ending | None:
        """See `Side.ending`."""
        result: AsyncResult[Any] = AsyncResult(case.task_id, app=self._app)
        if not result.ready():
            return None
        if result.state == "SUCCESS":
            return Ending("succeeded", str(result.result))
        return Ending("failed", f"{type(result.result).__name__}: {result.result}")


class FencepostSide(Side):
    """Drives `fencepost_app`."""

    def __init__(self, broker: str, fleet: Fleet) -> None:
        super().__init__("fencepost", broker, fleet)
        # Reads its settings from the environment, which must be complete by now.
        from examples.refund_agent import fencepost_app

        self.fp: Fencepost = fencepost_app.fp
        self._task = fencepost_app.handle_complaint

    def start(self, case: Case) -> None:
        """See `Side.start`."""
        handle = self.fp.start(self._task, case.complaint, key=case.complaint.id)
        case.task_id = str(handle.execution_id)

    def deliver_again(self, case: Case) -> None:
        """See `Side.deliver_again`."""
        execution = self.fp.engine.executions.get(UUID(case.task_id))
        assert execution is not None  # just started
        self.fp.engine.transport.dispatch(execution)

    def ending(self, case: Case) -> Ending | None:
        """See `Side.ending`."""
        execution = self.fp.engine.executions.get(UUID(case.task_id))
        assert execution is not None
        if execution.status is Status.SUCCEEDED:
            return Ending("succeeded", AgentResult.model_validate(execution.result).content)
        if execution.status is Status.PARKED:
            return Ending("parked", execution.parked_reason or "")
        return Ending("failed", str(execution.error)) if execution.status.ended else None

    def settle(self, case: Case, landed: dict[str, Any] | None) -> None:
        """What a person does about a parked case who has looked at the provider's statement.

        Args:
            case: Its effect is in doubt.
            landed: The refund's result, if it is on the statement.
        """
        [doubtful] = [
            effect
            for effect in self.fp.effects_in_doubt()
            if str(effect.execution_id) == case.task_id
        ]
        self.fp.resolve_effect(
            doubtful.sink,
            doubtful.key,
            landed=landed is not None,
            result=landed,
            by="demo",
            why="as the provider's statement shows",
        )

    def close(self) -> None:
        """See `Side.close`."""
        super().close()
        self.fp.database.dispose()
