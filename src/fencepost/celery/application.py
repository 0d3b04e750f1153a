"""`install(app)`: Fencepost on a Celery app, and the engine of each of its processes."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from celery import Celery
from sqlalchemy import event
from sqlalchemy.orm import Session

from fencepost.celery import worker
from fencepost.celery.drain import DrainFlag
from fencepost.celery.handle import Handle
from fencepost.celery.hardening import Finding, check_settings, hardened
from fencepost.celery.operating import Operating
from fencepost.celery.task import register_tasks
from fencepost.celery.transport import CeleryTransport
from fencepost.commands import Definition
from fencepost.durable import DurableTask
from fencepost.engine import Engine, EngineOptions
from fencepost.engine.decisions import Decision, decide_effect
from fencepost.engine.registry import Registry
from fencepost.errors import ConfigurationError
from fencepost.records import DEFAULT_PRIORITY, Status
from fencepost.saga import Saga
from fencepost.settings import FencepostSettings, load_settings
from fencepost.stores.redis import RedisLeaseStore
from fencepost.stores.sql import (
    SqlEffectStore,
    SqlExecutionStore,
    SqlLimitStore,
    create_engine,
)

if TYPE_CHECKING:
    from fencepost.effects import EffectRecord
    from fencepost.ports import LeaseStore
    from fencepost.records import Execution

In = TypeVar("In")
Out = TypeVar("Out")

SPARE_CONNECTIONS = 2
"""Database connections beside one for each thread that runs executions."""

_installed: list[Fencepost] = []


class Fencepost(Operating):
    """Fencepost on a Celery app. Made by `install`.

    Attributes:
        app: The Celery app.
        settings: What the fleet agrees on.
        registry: The sagas that this process knows.
        draining: Raised when the worker shuts down.
        node: The worker's node name, once there is one.
        concurrency: How many executions this process runs at once.
    """

    def __init__(
        self, app: Celery, sagas: Iterable[Definition], settings: FencepostSettings
    ) -> None:
        self.app = app
        self.settings = settings
        self.registry = Registry(sagas)
        self.draining = DrainFlag()
        self.node = ""
        self.concurrency = 1
        self._engine: Engine | None = None
        self._inherited: list[Engine] = []
        self._lock = threading.Lock()
        run, join = register_tasks(app, self)
        self._transport = CeleryTransport(app, run, join)
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        # Connections belong to the process that made them. The parent's engine is kept, unused,
        # so that no destructor in this process touches the parent's sockets and files.
        self._lock = threading.Lock()
        if self._engine is not None:
            self._inherited.append(self._engine)
            self._engine = None

    @property
    def engine(self) -> Engine:
        """The engine of this process; connects when it is first used."""
        with self._lock:
            if self._engine is None:
                self._engine = self._make_engine()
            return self._engine

    def _make_engine(self) -> Engine:
        settings = self.settings
        database = create_engine(
            settings.database_url.get_secret_value(),
            idle_in_transaction=settings.ttl,
            pool_size=max(settings.pool_size, self.concurrency + SPARE_CONNECTIONS),
        )
        node = self.node or socket.gethostname()
        executions = self.open_executions(database)
        return Engine(
            executions,
            self.open_leases(),
            self._transport,
            self.registry,
            EngineOptions(
                lease_ttl=settings.ttl,
                max_recoveries=settings.max_recoveries,
                max_effect_payload=settings.max_effect_payload,
                draining=self.draining,
                owner=f"{node}:{os.getpid()}",
            ),
            effects=SqlEffectStore(executions),
            limits=SqlLimitStore(executions),
        )

    def open_executions(self, database: sa.Engine) -> SqlExecutionStore:
        """Make this process's execution store; a subclass may make another (see `install`).

        Args:
            database: The engine of the ledger's database, of this process alone.
        """
        return SqlExecutionStore(database, start_grace=self.settings.grace)

    def open_leases(self) -> LeaseStore:
        """Make this process's lease store; a subclass may make another (see `install`)."""
        return RedisLeaseStore.from_url(self.lease_url, prefix=self.settings.redis_prefix)

    @property
    def lease_url(self) -> str:
        """Where the leases are.

        Raises:
            ConfigurationError: Not set, and the broker isn't Redis.
        """
        if self.settings.redis_url is not None:
            return self.settings.redis_url.get_secret_value()
        broker = str(self.app.conf.broker_url or "")
        if broker.startswith(("redis://", "rediss://")):
            return broker
        raise ConfigurationError("set FENCEPOST_REDIS_URL: the leases need Redis or Valkey")

    @property
    def database(self) -> sa.Engine:
        """The SQLAlchemy engine of the ledger's database, in this process."""
        store = self.engine.executions
        assert isinstance(store, SqlExecutionStore)  # the only kind that _make_engine makes
        return store.engine

    def register(self, *sagas: Definition) -> None:
        """Make sagas known to this process; child sagas come along."""
        for saga in sagas:
            self.registry.add(saga)

    def start(
        self,
        saga: Saga[In, Out] | DurableTask[In, Out],
        value: In,
        *,
        key: str | None = None,
        session: Session | sa.Connection | None = None,
        priority: int = DEFAULT_PRIORITY,
        deadline: timedelta | None = None,
    ) -> Handle[Out]:
        """Start an execution.

        Args:
            saga: What to run.
            value: Its input.
            key: Business key, unique for each saga. The same key with the same input finds the
                execution that is there.
            session: Your own session or connection on the ledger's database: the execution is
                part of its transaction, and starts only if that commits.
            priority: 0 to 9; of two that are due, the higher one goes first.
            deadline: Until it is turned back, if it has neither ended nor passed its pivot;
                instead of the saga's own.

        Raises:
            PayloadError: The value isn't of the saga's input type, or an option is out of range.
            SagaDefinitionError: `fencepost check` finds errors in the saga.
            BusinessKeyConflictError: The key was used with another input.
            ServiceUnavailableError: The database doesn't answer. A broker that doesn't answer
                is no error: the workers find the execution in SQL.
        """
        engine = self.engine
        execution, created = engine.create(
            saga, value, key=key, session=session, priority=priority, deadline=deadline
        )
        if created:
            self._dispatch_when_committed(execution, session)
        return Handle(self, execution.execution_id, saga.output_type, created=created)

    def _dispatch_when_committed(
        self, execution: Execution, session: Session | sa.Connection | None
    ) -> None:
        if session is None:
            self.engine.dispatch(execution)
        elif isinstance(session, Session):

            @event.listens_for(session, "after_commit", once=True)
            def dispatch(_session: Session) -> None:
                self.engine.dispatch(execution)

        # A connection has no event after its commit: there the reaper dispatches.

    def handle(
        self, execution_id: Any, saga: Saga[Any, Out] | DurableTask[Any, Out]
    ) -> Handle[Out]:
        """A handle on an execution that was started elsewhere."""
        return Handle(self, execution_id, saga.output_type, created=False)

    def effects_in_doubt(self, limit: int = 100) -> list[EffectRecord]:
        """Effects that wait for a person's decision, oldest first."""
        return self.engine.effects.in_doubt(limit)

    def resolve_effect(
        self, sink: str, key: str, *, landed: bool, result: Any = None, by: str, why: str
    ) -> Decision:
        """Decide about an effect in doubt; its execution goes on if nothing else of it is.

        Args:
            sink: Where the effect lands.
            key: Its key.
            landed: What you have found out: it is there, or it isn't and never will be.
            result: JSON-compatible: what the sink answered, where it has landed.
            by: Who decides.
            why: Kept in the audit trail.

        Raises:
            EffectNotFoundError: There is no such effect.
            ExecutionStateError: Its outcome is known, or its execution isn't parked.
            PayloadError: The result isn't of the effect's type.
        """
        engine = self.engine
        recorded = engine.effects.find(sink, key)
        decision = decide_effect(
            engine.executions,
            engine.effects,
            sink,
            key,
            landed=landed,
            result=result,
            by=by,
            why=why,
            declared=engine.registry.effect(recorded.effect) if recorded else None,
        )
        if decision.execution.status is Status.ACTIVE:
            engine.dispatch(decision.execution)
        return decision

    def findings(self) -> list[Finding]:
        """What in the app's settings breaks the protocol or slows it down."""
        fans_out = any(saga.fans_out for saga in self.registry)
        return check_settings(self.app, lease_ttl=self.settings.ttl, fans_out=fans_out)


def install(
    app: Celery,
    *,
    sagas: Iterable[Definition] = (),
    settings: FencepostSettings | None = None,
    kind: type[Fencepost] = Fencepost,
    **given: Any,
) -> Fencepost:
    """Put Fencepost on a Celery app: its tasks, its reaper in every worker, its settings.

    Settings of the app that are yours stay; those you have not set get Fencepost's defaults,
    and a worker reports at its start what breaks the protocol.

    Args:
        app: The Celery app.
        sagas: What the workers shall be able to run.
        kind: A subclass of `Fencepost` that opens other stores.
        settings: All settings at once; or give single ones by name:
        **given: Fields of `FencepostSettings`, such as `database_url` or `lease_ttl`. What is
            not given is read from `FENCEPOST_*` variables.

    Raises:
        ConfigurationError: A setting is missing or out of range.
    """
    settings = settings or load_settings(**given)
    fencepost = kind(app, sagas, settings)
    app.add_defaults(lambda: hardened(settings.ttl))
    worker.extend(app, fencepost)
    _installed.append(fencepost)
    return fencepost


def current() -> Fencepost:
    """The installed Fencepost: the one installed last.

    Raises:
        ConfigurationError: None is installed.
    """
    if not _installed:
        raise ConfigurationError("call fencepost.install(app, ...) first")
    return _installed[-1]


def installed_on(app: Celery) -> Fencepost | None:
    """The Fencepost that was installed on this app last, if any was."""
    return next((one for one in reversed(_installed) if one.app is app), None)


def start(
    saga: Saga[In, Out] | DurableTask[In, Out],
    value: In,
    *,
    key: str | None = None,
    session: Session | sa.Connection | None = None,
    priority: int = DEFAULT_PRIORITY,
    deadline: timedelta | None = None,
) -> Handle[Out]:
    """`Fencepost.start` on the installed Fencepost."""
    return current().start(
        saga, value, key=key, session=session, priority=priority, deadline=deadline
    )
