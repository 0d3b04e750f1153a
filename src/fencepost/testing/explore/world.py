"""A fleet in one thread: workers, a reaper, messages, a clock, and stores that they share."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

from greenlet import getcurrent

from fencepost.commands import Definition
from fencepost.engine import Engine, EngineOptions
from fencepost.engine.heartbeat import Heartbeat
from fencepost.engine.reaper import Reaper
from fencepost.engine.registry import Registry
from fencepost.errors import ServiceUnavailableError, Suspended
from fencepost.ports import LeaseStore
from fencepost.records import Execution, Lease, Status
from fencepost.stores.memory import (
    MemoryEffectStore,
    MemoryExecutionStore,
    MemoryLeaseStore,
    MemoryLimitStore,
)
from fencepost.testing.explore.hearts import StillHeart
from fencepost.testing.explore.scheduled import Scheduled
from fencepost.testing.explore.scheduler import Scheduler, Task

TTL = timedelta(seconds=10)
START = 1_000_000.0
REAPER = "reaper"
USER = "user"


class Sink(Protocol):
    """Where effects land, in a world: it offers scheduling points, and can be judged."""

    def joins(self, world: World) -> None:
        """Be given the world before anything runs."""
        ...


@dataclass(eq=False)
class Message:
    """A hint that is under way."""

    execution_id: UUID
    name: str


@dataclass
class Clock:
    """Stands still until it is moved."""

    now: float = START

    def __call__(self) -> float:
        """Seconds."""
        return self.now


@dataclass(frozen=True, slots=True)
class Moved:
    """One entry of the timeline.

    Attributes:
        at: Seconds since the world began.
        who: A worker, or the world itself.
        what: In words.
    """

    at: float
    who: str
    what: str


class World:
    """One run's world.

    Args:
        sagas: What the workers know.
        workers: How many; each runs one delivery at a time.
        max_recoveries: As in `EngineOptions`.

    Attributes:
        timeline: What has happened.
        messages: Hints under way, in the order in which they were sent.
    """

    def __init__(
        self, sagas: Iterable[Definition], *, workers: int = 2, max_recoveries: int = 5
    ) -> None:
        self.scheduler = Scheduler()
        self.clock = Clock()
        self.executions = MemoryExecutionStore(clock=self.clock)
        self.leases = MemoryLeaseStore(clock=self.clock, holder_clock=self.clock)
        self.effects = MemoryEffectStore(self.executions)
        self.limits = MemoryLimitStore(self.executions)
        self.workers = tuple(f"w{number + 1}" for number in range(workers))
        self.messages: list[Message] = []
        self.timeline: list[Moved] = []
        self._hearts: list[StillHeart] = []
        self._names: dict[UUID, str] = {}
        registry = Registry(sagas)
        self._engines = {
            worker: self._engine(worker, registry, max_recoveries)
            for worker in (*self.workers, REAPER, USER)
        }
        # Jitter is chance too: a schedule must lead to the same run each time.
        random.seed(0)
        logging.disable(logging.CRITICAL)

    def _engine(self, worker: str, registry: Registry, max_recoveries: int) -> Engine:
        def seen(store: Any, name: str) -> Any:
            return Scheduled(store, self.scheduler, name)

        return Engine(
            seen(self.executions, "sql"),
            seen(self.leases, "redis"),
            seen(self, "broker"),
            registry,
            EngineOptions(
                lease_ttl=TTL,
                max_recoveries=max_recoveries,
                owner=worker,
                clock=self.clock,
                heartbeat=self._heart,
            ),
            effects=seen(self.effects, "sql"),
            limits=seen(self.limits, "sql"),
        )

    def _heart(self, _leases: LeaseStore, lease: Lease, ttl: timedelta, clock: Any) -> Heartbeat:
        owner = self.current()
        heart = StillHeart(
            self.leases,
            lease,
            ttl,
            clock,
            owner=owner,
            point=self.scheduler.point,
            left=self._left,
        )
        self._hearts.append(heart)
        return heart

    def _left(self, heart: StillHeart) -> None:
        self._hearts = [other for other in self._hearts if other is not heart]

    # -- the transport ---------------------------------------------------------------------

    def dispatch(self, execution: Execution) -> None:
        """See `Transport.dispatch`."""
        self.messages.append(Message(execution.execution_id, self.name_of(execution)))

    def fan_out(self, children: Sequence[Execution]) -> None:
        """See `Transport.fan_out`."""
        for child in children:
            self.dispatch(child)

    # -- what can be done ------------------------------------------------------------------

    def engine(self, worker: str = USER) -> Engine:
        """The engine of a worker, of the reaper or of a user."""
        return self._engines[worker]

    def current(self) -> Task:
        """The task that runs."""
        green = getcurrent()
        return next(task for task in self.scheduler.tasks if task.green is green)

    def point(self, what: str) -> None:
        """A scheduling point of a sink or a step's body."""
        self.scheduler.point(what)

    def deliver(self, message: Message, worker: str) -> Task:
        """Give a message to a worker."""
        self.messages.remove(message)
        engine = self._engines[worker]

        def run() -> None:
            try:
                engine.run(message.execution_id)
            except Suspended as suspended:
                self.tell(worker, suspended.reason)
            except ServiceUnavailableError as problem:
                # As the Celery task does: the execution is still owed, and SQL knows it.
                self.tell(worker, str(problem))

        return self.scheduler.spawn(f"{worker} runs {message.name}", worker, run)

    def reap(self) -> Task:
        """One pass of a reaper over everything."""
        reaper = Reaper(self._engines[REAPER])

        def run() -> None:
            for look in (reaper.expired, reaper.due, reaper.waiting, reaper.overdue):
                try:
                    look()
                except ServiceUnavailableError as problem:
                    self.tell(REAPER, str(problem))

        return self.scheduler.spawn("the reaper looks", REAPER, run)

    def free_worker(self) -> str | None:
        """A worker that runs nothing; a frozen one does not count as free."""
        busy = {
            task.worker for task in self.scheduler.tasks if task.condition in ("ready", "frozen")
        }
        return next((worker for worker in self.workers if worker not in busy), None)

    def next_event(self) -> float | None:
        """When something becomes due, or a lease runs out; None where all is at rest."""
        held = [expires for _, owner, _, expires in self.leases.entries() if owner is not None]
        if not held and not self.unfinished():
            return None
        with self.executions.locked() as (tables, _, _):
            due = [row.due_at for row in tables.rows.values() if row.due_at is not None]
            late = [
                row.execution.deadline_at.timestamp()
                for row in tables.rows.values()
                if row.execution.deadline_at is not None and not row.execution.status.ended
            ]
        return min([*due, *late, *held], default=None)

    def advance(self, until: float) -> None:
        """Let time go by; hearts of those that are not frozen beat."""
        while True:
            beats = [h for h in self._hearts if h.owner.ready and h.next_beat <= until]
            if not beats:
                break
            heart = min(beats, key=lambda h: h.next_beat)
            self.clock.now = max(self.clock.now, heart.next_beat)
            heart.beat()
        self.clock.now = max(self.clock.now, until)

    def forget_hearts(self, task: Task) -> None:
        """A dead task's heart beats no more."""
        self._hearts = [heart for heart in self._hearts if heart.owner is not task]

    # -- asking ----------------------------------------------------------------------------

    def unfinished(self) -> list[Execution]:
        """Executions that have neither ended nor wait for a person or a pause."""
        with self.executions.locked() as (tables, _, _):
            rows = [row.execution for row in tables.rows.values()]
        return [
            e
            for e in rows
            if not e.status.ended and e.status is not Status.PARKED and e.paused_at is None
        ]

    def name_of(self, execution: Execution) -> str:
        """A short name, for the timeline."""
        index = "" if execution.child_index is None else f"[{execution.child_index}]"
        return self._names.setdefault(execution.execution_id, f"{execution.saga}{index}")

    def tell(self, who: str, what: str) -> None:
        """Add to the timeline."""
        self.timeline.append(Moved(round(self.clock.now - START, 3), who, what))

    def close(self) -> None:
        """End the world."""
        self.scheduler.end()
        logging.disable(logging.NOTSET)


@dataclass(frozen=True)
class Budget:
    """How much may happen to the tasks of one run.

    Attributes:
        preemptions: How often a task that could go on is made to wait for another.
        faults: Deaths, freezes, lost and doubled messages, lost answers, forgetting, in all.
        kinds: Of faults.
    """

    preemptions: int = 1
    faults: int = 1
    kinds: frozenset[str] = field(
        default=frozenset({"kill", "freeze", "lose-answer", "lose-request", "forget", "double"})
    )
