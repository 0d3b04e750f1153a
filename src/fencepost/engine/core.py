"""`Engine`: takes an execution's id, and carries the execution as far as it can go."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from fencepost import faults, identity, serde
from fencepost.clock import seconds_alive
from fencepost.commands import Definition, first_queue
from fencepost.durable import DurableTask
from fencepost.engine import points
from fencepost.engine.effects import PAYLOAD_LIMIT
from fencepost.engine.heartbeat import Heartbeat
from fencepost.engine.offers import Offers
from fencepost.engine.registry import Registry
from fencepost.engine.run import ANYWHERE
from fencepost.engine.saga_run import SagaRun
from fencepost.engine.task_run import TaskRun
from fencepost.errors import FencepostError, PayloadError, Suspended
from fencepost.ports import EffectStore, ExecutionStore, LeaseStore, LimitStore, Transport
from fencepost.records import (
    DEFAULT_PRIORITY,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    Acquired,
    Event,
    EventName,
    Execution,
    Lease,
    NewExecution,
    Status,
)

logger = logging.getLogger(__name__)

KEY_LIMIT = 255
"""Characters of a business key."""

LEFT_TO_OTHERS = timedelta(seconds=2)
"""When an execution is due again that a worker without its version was given."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What a fleet agrees on.

    Attributes:
        lease_ttl: How long a silent owner keeps its execution.
        max_recoveries: Takeovers without a new checkpoint before an execution is parked.
        max_effect_payload: Bytes of JSON of an effect's request or result.
        draining: Whether this worker is on its way out (asked between steps).
        owner: Names this process in leases and events.
        clock: Monotonic seconds.
        heartbeat: Keeps a lease while its execution is run; schedule exploration has another.
        sleep: Lets a number of seconds go by, likewise.
    """

    lease_ttl: timedelta = timedelta(seconds=30)
    max_recoveries: int = 5
    max_effect_payload: int = PAYLOAD_LIMIT
    draining: Callable[[], bool] = lambda: False
    owner: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")
    clock: Callable[[], float] = seconds_alive
    heartbeat: Callable[[LeaseStore, Lease, timedelta, Callable[[], float]], Heartbeat] = Heartbeat
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an execution ended."""

    execution_id: UUID
    status: Status
    result: Any
    error: Any


class Engine:
    """Runs executions over the ports. Knows nothing of Celery, Redis or SQL.

    Args:
        executions: The truth.
        leases: Liveness.
        transport: Hints to workers.
        registry: The sagas that this process knows.
        options: What the fleet agrees on.
        effects: What is known of effects.
        limits: Who may begin a limited step.
    """

    def __init__(
        self,
        executions: ExecutionStore,
        leases: LeaseStore,
        transport: Transport,
        registry: Registry,
        options: EngineOptions,
        *,
        effects: EffectStore,
        limits: LimitStore,
    ) -> None:
        self.executions = executions
        self.leases = leases
        self.transport = transport
        self.registry = registry
        self.options = options
        self.effects = effects
        self.limits = limits
        self._offers = Offers()
        if faults.armed():
            points.surround(self)

    @property
    def unattended(self) -> timedelta:
        """How long a row may go without a sign of life in SQL before its lease is looked up."""
        return self.options.lease_ttl + timedelta(seconds=2)

    def create(
        self,
        saga: Definition,
        value: Any,
        *,
        key: str | None = None,
        session: Any = None,
        priority: int = DEFAULT_PRIORITY,
        deadline: timedelta | None = None,
    ) -> tuple[Execution, bool]:
        """Insert an execution; with a key that is in use, find it instead.

        Args:
            saga: What to run.
            value: Its input.
            key: Business key, unique for each saga; at most 255 characters.
            session: The caller's `Session` or `Connection`, whose transaction it joins.
            priority: 0 to 9; of two that are due, the higher one is dispatched first.
            deadline: Instead of the saga's own.

        Raises:
            PayloadError: The input isn't of the saga's input type, the key is empty or too long,
                or the priority or deadline is out of range. Nothing is written.
            BusinessKeyConflictError: The key was used with another input.
            SagaDefinitionError: `fencepost check` finds errors in the saga.
        """
        _check_key(key)
        _check_options(priority, deadline)
        self.registry.add(saga)
        data = serde.dump(value, saga.input_type, what=f"input of saga {saga.name!r}")
        execution_id = uuid4() if key is None else identity.keyed_execution_id(saga.name, key)
        new = NewExecution(
            execution_id=execution_id,
            saga=saga.name,
            version=saga.version,
            input=data,
            input_digest=serde.digest(data),
            lineage_id=execution_id,
            root_id=execution_id,
            business_key=key,
            queue=first_queue(saga),
            priority=priority,
            deadline_in=deadline or deadline_of(saga),
        )
        return self.executions.create(new, session=session)

    def dispatch(self, execution: Execution) -> bool:
        """Ask for a worker. A failure is only logged, and told: the row is the outbox."""
        try:
            self.transport.dispatch(execution)
        except FencepostError as problem:
            logger.warning(
                "execution %s could not be dispatched, the reaper will do it: %s",
                execution.execution_id,
                problem,
            )
            return False
        return True

    def run(self, execution_id: UUID, queue: str | None = ANYWHERE) -> Outcome:
        """Carry an execution as far as it can go.

        Args:
            execution_id: Whose.
            queue: Where this run is: what belongs elsewhere is handed on. None is where Celery
                routes by itself.

        Returns:
            How it ended, now or at an earlier delivery.

        Raises:
            Suspended: It goes on elsewhere or later, or isn't ours.
        """
        execution = self.executions.get(execution_id)
        if execution is None:
            raise Suspended(f"there is no execution {execution_id} (yet)")
        if execution.status.ended:
            return outcome_of(execution)
        if execution.status not in (Status.ACTIVE, Status.WAITING):
            raise Suspended(f"execution {execution_id} is {execution.status}")
        if execution.paused_at is not None:
            raise Suspended(f"execution {execution_id} is paused")
        if queue not in (ANYWHERE, execution.queue):
            self.dispatch(execution)
            raise Suspended(f"execution {execution_id} goes on on queue {execution.queue}")
        saga = self.registry.find(execution.saga, execution.version)
        if saga is None:
            raise Suspended(self._unknown_version(execution))
        if self.options.draining():
            # Messages may still come while a worker leaves; it must not become an owner.
            self.dispatch(execution)
            raise Suspended(f"execution {execution_id} is left to others: shutting down")
        owner = f"{self.options.owner}:{uuid4().hex[:8]}"
        lease = self._take_lease(execution, owner)
        if lease is None:
            raise Suspended(f"execution {execution_id} has a live owner")
        faults.reach("lease.acquired", saga=execution.saga)
        acquired = self._become_owner(lease)
        if isinstance(acquired, Outcome):
            return acquired
        return self._run_owned(saga, acquired, lease, queue)

    def _take_lease(self, execution: Execution, owner: str) -> Lease | None:
        execution_id, ttl = execution.execution_id, self.options.lease_ttl
        lease = self.leases.acquire(execution_id, owner, ttl)
        if lease is None and execution.fenced_owner is not None:
            # It was turned back: nobody waits until who was fenced out has noticed.
            fenced = Lease(execution_id, execution.fenced_owner, epoch=0, deadline=0.0)
            if self.leases.release(fenced, forget=False):
                lease = self.leases.acquire(execution_id, owner, ttl)
        return lease

    def _unknown_version(self, execution: Execution) -> str:
        reason = f"no saga {execution.saga!r} of version {execution.version} is registered here"
        if self.registry.first_sight(execution.execution_id):
            logger.warning("execution %s: %s", execution.execution_id, reason)
            self.executions.record(
                Event(
                    execution_id=execution.execution_id,
                    name=EventName.VERSION_UNKNOWN,
                    epoch=execution.epoch,
                    owner=self.options.owner,
                    details={"saga": execution.saga, "version": execution.version},
                )
            )
        # Soon, for a worker that has it: only those look for it (see `Reaper.due`).
        self.executions.defer(execution.execution_id, execution.epoch, LEFT_TO_OTHERS)
        if self._offers.may_offer(execution.execution_id, self.options.clock()):
            # And at once, to whoever is free next.
            self.dispatch(execution)
        return reason

    def _become_owner(self, lease: Lease) -> Acquired | Outcome:
        execution_id = lease.execution_id
        got = self.executions.acquire(execution_id, lease.owner, lease.epoch, self.unattended)
        if isinstance(got, Acquired):
            return got
        runnable = got.status in (Status.ACTIVE, Status.WAITING)
        if runnable and got.epoch >= lease.epoch:
            # Either Redis has lost its memory, or we slept since we proposed and another worker
            # is the owner. Only in the first case is the lease still ours.
            known = self.leases.settle(lease, got.epoch, self.options.lease_ttl)
            if known is not None:
                again = self.executions.acquire(
                    execution_id, lease.owner, got.epoch + 1, self.unattended
                )
                if isinstance(again, Acquired):
                    return again
        self.leases.release(lease, forget=got.status.ended)
        execution = self.executions.get(execution_id)
        if execution is not None and execution.status.ended:
            return outcome_of(execution)
        raise Suspended(f"execution {execution_id} is {got.status} at epoch {got.epoch}")

    def _run_owned(
        self, saga: Definition, acquired: Acquired, lease: Lease, queue: str | None
    ) -> Outcome:
        epoch = acquired.execution.epoch
        settled = self.leases.settle(lease, epoch, self.options.lease_ttl)
        if settled is None:
            raise Suspended(f"execution {lease.execution_id}: the lease expired while acquiring")
        if acquired.taken_over_from is not None:
            logger.warning(
                "execution %s recovered: epoch %d, from %s",
                lease.execution_id,
                epoch,
                acquired.taken_over_from,
            )
        options = self.options
        beating = options.heartbeat(self.leases, settled, options.lease_ttl, options.clock)
        with beating as heart:
            kind = TaskRun if isinstance(saga, DurableTask) else SagaRun
            return kind(self, saga, acquired, settled.owner, heart, queue=queue).to_the_end()

    def let_go(self, lease: Lease, *, ended: bool) -> None:
        """Release a lease; failing that, it expires."""
        try:
            self.leases.release(lease, forget=ended)
        except FencepostError as problem:
            logger.warning("can't release the lease of %s: %s", lease.execution_id, problem)

    def ended(self, execution: Execution) -> None:
        """Start what the end of an execution makes way for: its continuation, or a sibling.

        A failure is only logged: the reaper finds both.
        """
        try:
            if execution.status is Status.CONTINUED:
                following = identity.continuation_id(execution.execution_id)
                found = self.executions.get(following)
                ready = [] if found is None else [found]
            elif execution.parent_id is not None:
                ready = self.executions.admit(execution.parent_id, self.unattended)
            else:
                ready = []
        except FencepostError as problem:
            logger.warning("after the end of %s: %s", execution.execution_id, problem)
            return
        for following_execution in ready:
            self.dispatch(following_execution)


def _check_key(key: str | None) -> None:
    if key is not None and not 0 < len(key) <= KEY_LIMIT:
        raise PayloadError(f"a business key has 1 to {KEY_LIMIT} characters, not {len(key)}")


def _check_options(priority: int, deadline: timedelta | None) -> None:
    if not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        raise PayloadError(f"a priority is {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}, not {priority}")
    if deadline is not None and deadline <= timedelta(0):
        raise PayloadError("a deadline must be positive")


def deadline_of(saga: Definition) -> timedelta | None:
    """The deadline that a saga declares for its executions; a durable task has none."""
    return None if isinstance(saga, DurableTask) else saga.deadline


def outcome_of(execution: Execution) -> Outcome:
    """The recorded end of an execution."""
    return Outcome(execution.execution_id, execution.status, execution.result, execution.error)
