"""The real engine over stores in memory; workers are plain calls, and time is the test's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from fencepost import Saga, Status, faults
from fencepost.effects import EffectRecord, EffectStatus
from fencepost.engine import Engine, EngineOptions
from fencepost.engine.reaper import Reaper
from fencepost.engine.registry import Registry
from fencepost.errors import Suspended
from fencepost.records import Event, Execution
from fencepost.stores.memory import (
    MemoryEffectStore,
    MemoryExecutionStore,
    MemoryLeaseStore,
    MemoryLimitStore,
)
from tests.unit.effects.support import Clock, Died

TTL = timedelta(seconds=5)
DELIVERIES = 200


class Fleet:
    """Delivers what the engine dispatches, one message after the other.

    Args:
        *sagas: What the workers know.
    """

    def __init__(self, *sagas: Saga[Any, Any], **options: Any) -> None:
        self.clock = Clock()
        self.store = MemoryExecutionStore(clock=self.clock)
        self.effects = MemoryEffectStore(self.store)
        self.queue: deque[UUID] = deque()
        self.engine = Engine(
            self.store,
            MemoryLeaseStore(clock=self.clock, holder_clock=self.clock),
            self,
            Registry(sagas),
            EngineOptions(lease_ttl=TTL, clock=self.clock, **options),
            effects=self.effects,
            limits=MemoryLimitStore(self.store),
        )

    def dispatch(self, execution: Execution) -> None:
        self.queue.append(execution.execution_id)

    def fan_out(self, children: Sequence[Execution]) -> None:
        self.queue.extend(child.execution_id for child in children)

    def start(self, saga: Saga[Any, Any], value: Any) -> UUID:
        execution, _ = self.engine.create(saga, value)
        return execution.execution_id

    def deliver(self, execution_id: UUID) -> None:
        """One message; a worker that is killed leaves its lease to expire."""
        with suppress(Suspended, Died):
            self.engine.run(execution_id)

    def run(self, saga: Saga[Any, Any], value: Any) -> UUID:
        """Start an execution and carry it on until it ends or is parked."""
        execution_id = self.start(saga, value)
        self.deliver(execution_id)
        self.settle(execution_id)
        return execution_id

    def settle(self, execution_id: UUID) -> None:
        """Let time pass and deliver until it has ended or is parked."""
        for _ in range(DELIVERIES):
            execution = self.row(execution_id)
            if execution.status.ended or execution.status is Status.PARKED:
                return
            self.clock.now += 10.0
            Reaper(self.engine).due()
            Reaper(self.engine).waiting()
            while self.queue:
                self.deliver(self.queue.popleft())
        raise AssertionError(f"it doesn't come to an end: {self.row(execution_id)}")

    def go_on(self, execution_id: UUID) -> None:
        """A person lets it go on."""
        self.store.unpark(execution_id, "resolved")
        self.settle(execution_id)

    def resolve(self, execution_id: UUID, *, landed: bool, result: Any = None) -> None:
        """A person decides about the one effect that is in doubt."""
        (left,) = self.effects.in_doubt(10)
        assert left.execution_id == execution_id
        self.effects.resolve(
            left.sink, left.key, landed=landed, result=result, by="ada", why="I looked"
        )

    def killed_at(self, point: str, doing: Callable[[], None], **match: str) -> None:
        """Kill the worker that first comes to a crash point."""
        self.once_at(point, _die, doing, **match)

    def once_at(
        self, point: str, there: Callable[[], None], doing: Callable[[], None], **match: str
    ) -> None:
        """Do something where a crash point is reached for the first time."""
        waiting = [there]

        def hook(reached: str, facts: dict[str, Any]) -> None:
            fits = all(str(facts.get(name)) == value for name, value in match.items())
            if waiting and reached == point and fits:
                waiting.pop()()

        faults.install(hook)
        try:
            doing()
        finally:
            faults.install(None)
        assert not waiting, f"{point} {match} was never reached"

    def row(self, execution_id: UUID) -> Execution:
        found = self.store.get(execution_id)
        assert found is not None
        return found

    def effect(self, execution_id: UUID) -> EffectRecord:
        """Its only effect."""
        (record,) = self.effects.of_execution(execution_id)
        return record

    def status(self, execution_id: UUID) -> tuple[Status, EffectStatus]:
        """Of the execution and its only effect."""
        return self.row(execution_id).status, self.effect(execution_id).status

    def events(self, execution_id: UUID, name: str) -> list[Event]:
        return [event for event in self.store.events([execution_id]) if event.name == name]

    def steps(self, execution_id: UUID) -> list[tuple[str, str]]:
        """(kind, step) of its chain."""
        return [(entry.kind, entry.step) for entry in self.store.chain(execution_id)]


def _die() -> None:
    raise Died
