"""What is stored about executions, for a test that waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from fencepost.records import Status

if TYPE_CHECKING:
    from fencepost.records import Checkpoint, Event, Execution
    from fencepost.stores.sql import SqlExecutionStore


def id_of(execution: Any) -> UUID:
    """The id of an execution that is named by its handle, its row, its outcome or its id.

    Raises:
        TypeError: It is none of these.
    """
    if isinstance(execution, str):
        return UUID(execution)
    found = getattr(execution, "execution_id", execution)
    if not isinstance(found, UUID):
        raise TypeError(f"{execution!r} names no execution: give its handle or its id")
    return found


class Ledger:
    """Reads executions from SQL; connects when it is first asked.

    Args:
        database_url: SQLAlchemy URL of the truth.
    """

    def __init__(self, database_url: str) -> None:
        self.database_url = database_url
        self._opened: SqlExecutionStore | None = None

    @property
    def _store(self) -> SqlExecutionStore:
        if self._opened is None:
            from fencepost.stores.sql import SqlExecutionStore, create_engine

            self._opened = SqlExecutionStore(create_engine(self.database_url))
        return self._opened

    def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.engine.dispose()

    def execution(self, execution: Any) -> Execution | None:
        """The execution as it is now, or what continues it; None if there is none."""
        found = self._store.get(id_of(execution))
        while found is not None and found.status is Status.CONTINUED:
            found = self._store.get(UUID(found.result["continued_as"]))
        return found

    def events(self, execution: Any, name: str | None = None) -> list[Event]:
        """Its audit events, oldest first: those of one name, or all."""
        events = self._store.events([id_of(execution)])
        return [event for event in events if name in (None, event.name)]

    def checkpoints(self, execution: Any) -> tuple[Checkpoint, ...]:
        """Its chain."""
        return self._store.chain(id_of(execution))

    def story(self, execution: Any) -> str:
        """All that is stored, for a failed assertion."""
        row = self._store.get(id_of(execution))
        if row is None:
            return f"{execution}: there is no such execution in this database"
        lines = [f"execution {row.execution_id} is {row.status}, epoch {row.epoch}"]
        if row.parked_reason:
            lines.append(f"  parked: {row.parked_reason}")
        lines += [
            f"  checkpoint {c.seq} {c.kind} {c.step} epoch {c.epoch}"
            for c in self.checkpoints(execution)
        ]
        lines += [f"  event {e.at} {e.name} {e.epoch} {e.owner}" for e in self.events(execution)]
        return "\n".join(lines)
