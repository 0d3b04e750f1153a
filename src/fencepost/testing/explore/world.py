"""A fleet in one thread: workers, a reaper, messages, a clock, and stores that they share."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self
from uuid import UUID

from fencepost import faults
from fencepost.commands import Definition
from fencepost.engine import Engine, EngineOptions
from fencepost.engine.heartbeat import Heartbeat
from fencepost.engine.reaper import Reaper
from fencepost.engine.registry import Registry
from fencepost.errors import ExecutionStateError, ServiceUnavailableError, Suspended
from fencepost.ports import LeaseStore
from fencepost.records import Execution, Lease, Phase, Status
from fencepost.stores.memory import (
    MemoryEffectStore,
    MemoryExecutionStore,
    MemoryLeaseStore,
    MemoryLimitStore,
    waiting,
)
from fencepost.testing.explore.hearts import StillHeart
from fencepost.testing.explore.people import People
from fencepost.testing.explore.scheduled import Scheduled
from fencepost.testing.explore.scheduler import Scheduler, Task, Verdict

TTL = timedelta(seconds=10)
START = 1_000_000.0
REAPER = "reaper"
USER = "user"


POINTS = frozenset({"effect.after-intent"})
"""Crash points that are scheduling points: what follows them acts on a look at the clock.

Between two operations on stores nothing else can be told apart, so that it is enough to stop
before each operation.
"""


@dataclass(eq=False)
class Message:
    """A hint that is under way."""

    execution_id: UUID
    name: str
    doubled: bool = False
    delayed: bool = False


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
        registry: What the workers know.
        workers: How many; each runs one delivery at a time.
        max_recoveries: As in `EngineOptions`.

    Attributes:
        timeline: What has happened.
        messages: Hints under way, in the order in which they were sent.
        held: Hints that are held up until time has gone by.
        started: Executions that `start` has made.
        people: What users do; from tasks of theirs (see `user`).
    """

    def __init__(self, registry: Registry, *, workers: int = 2, max_recoveries: int = 5) -> None:
        self.scheduler = Scheduler()
        self.clock = Clock()
        self.executions = MemoryExecutionStore(clock=self.clock)
        self.leases = MemoryLeaseStore(clock=self.clock, holder_clock=self.clock)
        self.effects = MemoryEffectStore(self.executions)
        self.limits = MemoryLimitStore(self.executions)
        self.workers = tuple(f"w{number + 1}" for number in range(workers))
        self.messages: list[Message] = []
        self.held: list[Message] = []
        self.timeline: list[Moved] = []
        self.started: list[UUID] = []
        self._hearts: list[StillHeart] = []
        self._names: dict[UUID, str] = {}
        self._engines = {
            worker: self._engine(worker, registry, max_recoveries)
            for worker in (*self.workers, REAPER, USER)
        }
        self.people = People(self.engine())
        self._chance = random.getstate()
        self._logging = logging.root.manager.disable

    def __enter__(self) -> Self:
        # Jitter is chance too: a schedule must lead to the same run each time.
        random.seed(0)
        if self._logging < logging.CRITICAL:
            logging.disable(logging.CRITICAL)
        faults.install(self._crash_point)
        return self

    def __exit__(self, *_: object) -> None:
        self.scheduler.end()
        faults.install(None)
        if self._logging < logging.CRITICAL:
            logging.disable(self._logging)
        random.setstate(self._chance)

    def _crash_point(self, name: str, _facts: object) -> None:
        if name in POINTS:
            self.scheduler.point(name)

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
        owner = self.scheduler.current()
        assert owner is not None, "executions are run by tasks"
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

    def point(self, what: str, *, lossy: bool = False) -> Verdict:
        """A scheduling point of a sink or a step's body.

        Args:
            what: Is about to be done.
            lossy: Whether it may be told that the request, or its answer, is lost.

        Returns:
            What becomes of it; always `Verdict.GO` unless it is lossy.
        """
        return self.scheduler.point(what, lossy=lossy)

    def perish(self) -> None:
        """Let the worker die that runs this, as code does that kills its process."""
        self.scheduler.perish()

    def start(self, saga: Definition, value: Any, *, key: str = "one", **options: Any) -> UUID:
        """Start an execution, as a user does, and send its first message.

        Args:
            saga: What to run.
            value: Its input.
            key: Its business key: with it, ids are the same in every run.
            **options: Of `Engine.create`.
        """
        execution, created = self.engine().create(saga, value, key=key, **options)
        if created:
            self.started.append(execution.execution_id)
            self.engine().dispatch(execution)
        return execution.execution_id

    def user(self, name: str, does: Callable[[], object], *, after: Task | None = None) -> Task:
        """Have a user do something at any time, also when time has gone by.

        What the state of an execution doesn't allow is refused, and no more than told.

        Args:
            name: In words, for the timeline.
            does: Called once.
            after: Another task that comes first.
        """

        def run() -> None:
            try:
                does()
            except ExecutionStateError as refused:
                self.tell(USER, refused.message)

        return self.scheduler.spawn(name, USER, run, after=after, patient=True)

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
        look = self.leases.next_look()
        if look is None and not self.unfinished():
            return None
        return min([*self._due(), *([] if look is None else [look])], default=None)

    def _due(self) -> Iterator[float]:
        with self.executions.locked() as (tables, _, at):
            for row in tables.rows.values():
                execution = row.execution
                if row.due_at is not None and execution.paused_at is None:
                    wakes = execution.wake_at
                    if (
                        execution.status is not Status.WAITING
                        or waiting.ready(tables, row, at)
                        or waiting.has_places(tables, row)
                    ):
                        yield row.due_at
                    elif wakes is not None and execution.turned_back is None:
                        yield max(row.due_at, wakes.timestamp())
                if (
                    execution.deadline_at is not None
                    and execution.phase is Phase.FORWARD
                    and execution.status in (Status.QUEUED, Status.ACTIVE, Status.WAITING)
                ):
                    yield execution.deadline_at.timestamp()

    def something_is_due(self) -> bool:
        """Whether a reaper would find anything."""
        due = self.next_event()
        return due is not None and due <= self.clock.now

    def last_expiry(self) -> float | None:
        """When the last of the leases runs out that somebody holds."""
        entries = self.leases.entries()
        live = [at for _, owner, _, at in entries if owner is not None and at > self.clock.now]
        return max(live, default=None)

    @property
    def elapsed(self) -> float:
        """Seconds since the world began."""
        return self.clock.now - START

    def advance(self, until: float, *, beating: bool = True) -> None:
        """Let time go by; hearts of those that are not frozen beat, if any may."""
        while beating:
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
        """Executions that have neither ended nor wait for a person, directly or for a child."""
        everything = self.all_executions()
        resting = {e.execution_id for e in everything if e.status is Status.PARKED}
        parents = {e.execution_id: e.parent_id for e in everything}
        for execution_id in list(resting):
            parent = parents[execution_id]
            while parent is not None:
                resting.add(parent)
                parent = parents[parent]
        return [
            e
            for e in everything
            if not e.status.ended and e.paused_at is None and e.execution_id not in resting
        ]

    def parked(self) -> list[Execution]:
        """Executions that wait for a person."""
        return [e for e in self.all_executions() if e.status is Status.PARKED]

    def all_executions(self) -> list[Execution]:
        """Every execution, in the order of their making."""
        with self.executions.locked() as (tables, _, _):
            return [row.execution for row in tables.rows.values()]

    def end_of(self, execution_id: UUID) -> Execution:
        """The execution, or what continues it as new."""
        with self.executions.locked() as (tables, _, _):
            row = tables.rows[execution_id]
            while row.execution.status is Status.CONTINUED:
                row = tables.rows[UUID(row.execution.result["continued_as"])]
            return row.execution

    def name_of(self, execution: Execution) -> str:
        """A short name, for the timeline."""
        index = "" if execution.child_index is None else f"[{execution.child_index}]"
        return self._names.setdefault(execution.execution_id, f"{execution.saga}{index}")

    def tell(self, who: str, what: str) -> None:
        """Add to the timeline."""
        self.timeline.append(Moved(self.elapsed, who, what))
