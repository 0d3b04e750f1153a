"""What happens in a release, read from SQL as it happens: checkpoints and audit events in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fencepost.ports import ExecutionStore
from fencepost.records import Checkpoint, Event, Execution, Status

IDS_IN_FLIGHT = 100


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that was committed.

    Attributes:
        at: By the database's clock.
        execution: As it was when the fact was read.
        entry: The checkpoint or the audit event.
    """

    at: datetime
    execution: Execution
    entry: Checkpoint | Event


class Watch:
    """Follows everything that one start leads to.

    Args:
        store: The truth.
        root_id: The execution that was started.
    """

    def __init__(self, store: ExecutionStore, root_id: UUID) -> None:
        self._store = store
        self._root_id = root_id
        self._seen_seq: dict[UUID, int] = {}
        self._seen_events: set[int] = set()
        self.executions: dict[UUID, Execution] = {}

    def news(self) -> list[Fact]:
        """What was committed since the last call, in the order of its times."""
        for execution in self._store.lineage(self._root_id):
            self.executions[execution.execution_id] = execution
        facts = [*self._checkpoints(), *self._events()]
        return sorted(facts, key=lambda fact: fact.at)

    def attempts(self) -> list[Execution]:
        """The release executions of the line, in order."""
        return [e for e in self.executions.values() if e.parent_id is None]

    def waiting_for_a_person(self) -> list[Execution]:
        """Parked executions, if nothing else of the run can go on without them."""
        statuses = [execution.status for execution in self.executions.values()]
        if Status.ACTIVE in statuses:
            return []
        return [e for e in self.executions.values() if e.status is Status.PARKED]

    def attempt_of(self, execution: Execution) -> int:
        """The number of the attempt that an execution belongs to, from 1."""
        number: int = execution.input["attempt"]
        return number

    def module(self, name: str, attempt: int) -> Execution | None:
        """A module's execution in an attempt, if it is there already."""
        for execution in self.executions.values():
            spec = execution.input.get("module") if execution.parent_id else None
            if spec and spec["name"] == name and self.attempt_of(execution) == attempt:
                return execution
        return None

    def _checkpoints(self) -> Iterator[Fact]:
        for execution_id, execution in self.executions.items():
            seen = self._seen_seq.get(execution_id, -1)
            if execution.head_seq == seen:
                continue
            for checkpoint in self._store.chain(execution_id):
                if checkpoint.seq > seen:
                    yield Fact(checkpoint.created_at, execution, checkpoint)
                    self._seen_seq[execution_id] = checkpoint.seq

    def _events(self) -> Iterator[Fact]:
        # Ids are drawn before transactions commit, so a lower one may appear after a higher one.
        after = max(self._seen_events, default=0) - IDS_IN_FLIGHT
        for event in self._store.events(list(self.executions), after=after):
            assert event.event_id is not None  # it was stored
            assert event.at is not None
            if event.event_id not in self._seen_events:
                self._seen_events.add(event.event_id)
                yield Fact(event.at, self.executions[event.execution_id], event)
