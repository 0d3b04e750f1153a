"""`SqlExecutionStore`: the truth, on PostgreSQL or SQLite."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from fencepost.errors import BusinessKeyConflictError
from fencepost.records import (
    Checkpoint,
    Event,
    EventName,
    Execution,
    NewExecution,
    NewSignal,
    SentSignal,
)
from fencepost.stores.sql import (
    chain,
    claims,
    deciding,
    rows,
    schema,
    signals,
    statements,
    sweeps,
    turning,
)
from fencepost.stores.sql.owning import Owning
from fencepost.stores.sql.types import after


class SqlExecutionStore(Owning):
    """Implements `fencepost.ports.ExecutionStore`.

    Args:
        engine: From `fencepost.stores.sql.create_engine`.
        start_grace: How long a new execution's message has to arrive before the reaper looks.
    """

    def create(self, new: NewExecution, *, session: Any = None) -> tuple[Execution, bool]:
        """See `ExecutionStore.create`."""
        if session is not None:
            return self._create(session, new)
        with self.writing() as connection:
            return self._create(connection, new)

    def _create(self, connection: Any, new: NewExecution) -> tuple[Execution, bool]:
        insert = statements.create_execution(self.engine.dialect.name, self.grace)
        made = connection.execute(insert, rows.new_execution(new)).first()
        if made is not None:
            connection.execute(sa.insert(schema.checkpoints), rows.first_checkpoints(new))
            connection.execute(statements.INSERT_EVENT, rows.first_events(new))
        stored = chain.read_execution(connection, new.execution_id)
        digest = chain.read_digest(connection, new.execution_id)
        if stored is None or digest != new.input_digest:
            raise BusinessKeyConflictError(new.saga, new.business_key or "", new.execution_id)
        return stored, made is not None

    def get(self, execution_id: UUID) -> Execution | None:
        """See `ExecutionStore.get`."""
        with self.reading() as connection:
            return chain.read_execution(connection, execution_id)

    def chain(self, execution_id: UUID) -> tuple[Checkpoint, ...]:
        """See `ExecutionStore.chain`."""
        with self.reading() as connection:
            return chain.read_chain(connection, execution_id)

    def unpark(
        self, execution_id: UUID, why: str, *, by: str = "", directive: Any = None
    ) -> Execution:
        """See `ExecutionStore.unpark`."""
        with self.writing() as connection:
            return deciding.unpark(connection, execution_id, why, by, directive)

    def turn_back(
        self,
        execution_id: UUID,
        cause: Any,
        event: EventName,
        details: Mapping[str, Any],
        *,
        only_forward: bool = False,
    ) -> Execution:
        """See `ExecutionStore.turn_back`."""
        with self.writing() as connection:
            return turning.turn_back(
                connection, execution_id, cause, event, details, only_forward=only_forward
            )

    def pause(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """See `ExecutionStore.pause`."""
        with self.writing() as connection:
            return deciding.pause(connection, execution_id, by, why)

    def resume(self, execution_id: UUID, *, by: str, why: str) -> list[Execution]:
        """See `ExecutionStore.resume`."""
        with self.writing() as connection:
            return deciding.resume(connection, execution_id, by, why)

    def reopen(self, execution_id: UUID, *, by: str, why: str) -> Execution:
        """See `ExecutionStore.reopen`."""
        with self.writing() as connection:
            return deciding.reopen(connection, execution_id, by, why)

    def send_signal(self, signal: NewSignal) -> tuple[SentSignal, bool]:
        """See `ExecutionStore.send_signal`."""
        with self.writing() as connection:
            return signals.send(connection, signal)

    def pending_signals(self, execution_id: UUID, name: str) -> list[SentSignal]:
        """See `ExecutionStore.pending_signals`."""
        with self.reading() as connection:
            return signals.read_pending(connection, execution_id, name)

    def reject_signal(self, signal_id: UUID, reason: str) -> None:
        """See `ExecutionStore.reject_signal`."""
        with self.writing() as connection:
            signals.reject(connection, signal_id, reason)

    def record(self, event: Event) -> None:
        """See `ExecutionStore.record`."""
        with self.writing() as connection:
            connection.execute(statements.INSERT_EVENT, rows.event_values(event))

    def events(self, execution_ids: Sequence[UUID], *, after: int = 0) -> list[Event]:
        """See `ExecutionStore.events`."""
        with self.reading() as connection:
            return sweeps.read_events(connection, execution_ids, after)

    def children(self, parent_id: UUID, step: str, visit: int) -> list[Execution]:
        """See `ExecutionStore.children`."""
        with self.reading() as connection:
            return sweeps.read_children(connection, parent_id, step, visit)

    def lineage(self, execution_id: UUID) -> list[Execution]:
        """See `ExecutionStore.lineage`."""
        with self.reading() as connection:
            return sweeps.read_lineage(connection, execution_id)

    def admit(self, parent_id: UUID, due_in: timedelta) -> list[Execution]:
        """See `ExecutionStore.admit`."""
        with self.writing() as connection:
            return sweeps.admit(connection, parent_id, due_in.total_seconds())

    def claim(self, execution_ids: Sequence[UUID], hold: timedelta) -> list[Execution]:
        """See `ExecutionStore.claim`."""
        return self._claim(claims.active_among(execution_ids), hold)

    def claim_due(
        self,
        limit: int,
        hold: timedelta,
        *,
        known: Collection[tuple[str, str]] | None = None,
    ) -> list[Execution]:
        """See `ExecutionStore.claim_due`."""
        return self._claim(claims.due(limit, known), hold)

    def claim_waiting(
        self,
        limit: int,
        hold: timedelta,
        *,
        known: Collection[tuple[str, str]] | None = None,
    ) -> list[Execution]:
        """See `ExecutionStore.claim_waiting`."""
        return self._claim(claims.waiting(limit, known), hold)

    def overdue(self, limit: int) -> list[Execution]:
        """See `ExecutionStore.overdue`."""
        with self.reading() as connection:
            return [rows.execution(row) for row in connection.execute(claims.overdue(limit))]

    def _claim(self, which: sa.Select[Any], hold: timedelta) -> list[Execution]:
        if not self.postgresql:
            # The reapers of a fleet look all the time, and mostly find nothing. SQLite has one
            # lock for all writers, and a worker that is frozen while it holds that stops them all.
            with self.reading() as connection:
                if connection.execute(which).first() is None:
                    return []
        with self.writing() as connection:
            return sweeps.claim(connection, which, hold.total_seconds())

    def defer(self, execution_id: UUID, epoch: int, due_in: timedelta) -> None:
        """See `ExecutionStore.defer`."""
        table = schema.executions
        with self.writing() as connection:
            connection.execute(
                sa.update(table)
                .where(table.c.execution_id == execution_id, table.c.epoch == epoch)
                .where(table.c.due_at.is_not(None))
                .values(due_at=after(sa.literal(due_in.total_seconds())), dispatches=0)
            )
