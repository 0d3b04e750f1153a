"""The factory's sagas on the engine and a real database, with workers that are plain calls."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from sqlalchemy.orm import Session

from fencepost.clock import seconds_alive
from fencepost.engine.core import Engine, EngineOptions, Outcome
from fencepost.engine.reaper import Reaper
from fencepost.engine.registry import Registry
from fencepost.errors import Suspended
from fencepost.records import Execution, Status
from fencepost.stores.memory.leases import MemoryLeaseStore
from fencepost.stores.sql import (
    SqlEffectStore,
    SqlExecutionStore,
    SqlLimitStore,
    create_engine,
)
from ledger import attempts, database
from ledger.models import Attempt
from ledger.publishing import PublishStore
from ledger.release_file import load_release
from ledger.staging import StagingStore
from ledger.vocabulary import ReleaseRequest
from saga.release import release

EXAMPLE = Path(__file__).parents[3] / "examples" / "release" / "release.toml"
DELIVERIES = 500


@dataclass
class Fleet:
    """Delivers what the engine dispatches, one message after the other."""

    url: str
    queue: deque[UUID] = field(default_factory=deque)
    skipped: float = 0.0

    def __post_init__(self) -> None:
        executions = SqlExecutionStore(create_engine(self.url))
        self.engine = Engine(
            executions,
            MemoryLeaseStore(clock=self._lease_clock, holder_clock=seconds_alive),
            self,
            Registry([release]),
            EngineOptions(),
            effects=SqlEffectStore(executions),
            limits=SqlLimitStore(executions),
        )

    def _lease_clock(self) -> float:
        return time.monotonic() + self.skipped

    def expire_leases(self) -> None:
        """Let the time pass after which a silent owner has lost its execution."""
        self.skipped += 3600.0

    def module(self, release_id: UUID, name: str) -> Execution:
        """The execution of a module in a release's first fan-out."""
        children = self.engine.executions.children(release_id, "stage_modules", 1)
        (found,) = [c for c in children if c.input["module"]["name"] == name]
        return found

    def staged(self, module: str) -> list[str]:
        """Names of the files that are there for a module."""
        return [Path(p).name for p in self.staged_files() if Path(p).parent.name == module]

    def dispatch(self, execution: Execution) -> None:
        self.queue.append(execution.execution_id)

    def fan_out(self, children: Sequence[Execution]) -> None:
        self.queue.extend(child.execution_id for child in children)

    def start(self, request: ReleaseRequest) -> UUID:
        execution, _ = self.engine.create(release, request)
        self.dispatch(execution)
        return execution.execution_id

    def deliver(self) -> None:
        """One message."""
        with suppress(Suspended):
            self.engine.run(self.queue.popleft())

    def drain(self) -> None:
        """Deliver until nothing is left to do."""
        for _ in range(DELIVERIES):
            if not self.queue:
                Reaper(self.engine).waiting()
                if not self.queue:
                    return
            self.deliver()
        raise AssertionError("the release doesn't come to an end")

    def run(self, request: ReleaseRequest) -> list[Execution]:
        """Run a release to its end; the executions of its line."""
        first = self.start(request)
        self.drain()
        return self.line(first)

    def line(self, first: UUID) -> list[Execution]:
        """The release executions of a line, in order."""
        line = self.engine.executions.lineage(first)
        return [execution for execution in line if execution.parent_id is None]

    def outcome(self, execution_id: UUID) -> Outcome:
        return self.engine.run(execution_id)

    def session(self) -> Session:
        return Session(database.engine_for(self.url))

    def attempts(self, lineage_id: UUID) -> list[Attempt]:
        with self.session() as session:
            return attempts.of_lineage(session, lineage_id)

    def staged_files(self) -> list[str]:
        return sorted(StagingStore().files())

    def nothing_is_orphaned(self) -> bool:
        with self.session() as session:
            return not StagingStore().orphans(session) and not PublishStore().orphans(session)


def example(**changes: object) -> ReleaseRequest:
    """The example release, changed."""
    request = load_release(EXAMPLE)
    return ReleaseRequest.model_validate(request.model_dump() | changes)


def ended(execution: Execution) -> tuple[Status, str | None]:
    """How an execution ended: its status, and the code of its error."""
    error = execution.error or {}
    return execution.status, error.get("code")
