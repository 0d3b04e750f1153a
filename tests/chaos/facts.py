"""What is stored at the end: by the engine, by the sinks, and in the history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from fencepost.stores.sql import create_engine
from tests.chaos import shop, warehouse
from tests.chaos.bank import Bank
from tests.chaos.history import Entry

ENDED = ("succeeded", "failed", "compensated", "continued")


@dataclass(frozen=True)
class Wanted:
    """What the workload wanted, by its history."""

    kind: str
    reference: str
    doomed: str
    items: int
    execution_id: str | None


@dataclass(frozen=True)
class Execution:
    """A row of the engine's."""

    execution_id: str
    saga: str
    status: str
    epoch: int
    root_id: str
    parent_id: str | None
    business_key: str | None
    parked_reason: str | None
    error: Any = None


@dataclass(frozen=True)
class Recorded:
    """An effect, as the engine has it on record."""

    sink: str
    key: str
    effect: str
    status: str
    execution_id: str
    number: int | None


@dataclass(frozen=True)
class Row:
    """Something that has happened, as a sink has it on record.

    Attributes:
        sink: The engine's name of it; `ledger` for what is in a step's transaction.
        reference: Of what, and what: `order-17/charge`.
        key: The effect's; the step key, in the ledger.
        number: The sink's own.
        epoch: Of who did it, where the sink knows.
        by: Who did it and when, for people.
    """

    sink: str
    reference: str
    key: str
    number: int
    epoch: int | None = None
    by: str = ""


@dataclass(frozen=True)
class Facts:
    """Everything that is judged.

    Attributes:
        wanted: By reference.
        executions: By id.
        effects: The engine's records.
        rows: The sinks'.
        committed: Epochs of the step and undo checkpoints of each step key.
        events: How many there are of each name.
        violations: What the verifier has found.
    """

    wanted: Mapping[str, Wanted]
    executions: Mapping[str, Execution]
    effects: Sequence[Recorded]
    rows: Sequence[Row]
    committed: Mapping[str, Sequence[int]]
    events: Mapping[str, int] = field(default_factory=dict)
    violations: Sequence[str] = ()


def wanted(history: Iterable[Entry]) -> dict[str, Wanted]:
    """What the workload wanted, and what it knows to be started."""
    found: dict[str, Wanted] = {}
    for entry in history:
        if entry.what == "start":
            doomed, items = entry.facts["doomed"], entry.facts["items"]
            found[entry.target] = Wanted(entry.name, entry.target, doomed, items, None)
        elif entry.what == "started":
            before = found[entry.target]
            found[entry.target] = Wanted(
                before.kind, before.reference, before.doomed, before.items, entry.answer
            )
    return found


class Reader:
    """Asks the databases and the bank.

    Args:
        database_url: The ledger's.
        warehouse_url: The warehouse's.
        bank: The bank.
    """

    def __init__(self, database_url: str, warehouse_url: str, bank: Bank) -> None:
        self._database = create_engine(database_url)
        self._warehouse = create_engine(warehouse_url)
        self._bank = bank

    def close(self) -> None:
        """Close the connections."""
        self._database.dispose()
        self._warehouse.dispose()

    def _all(self, query: str) -> list[Any]:
        with self._database.connect() as connection:
            return list(connection.execute(sa.text(query)))

    def statuses(self) -> dict[str, int]:
        """How many executions there are of each status."""
        query = "SELECT status, count(*) FROM fencepost_executions GROUP BY status"
        return dict(map(tuple, self._all(query)))

    def length(self) -> int:
        """How many checkpoints there are."""
        return int(self._all("SELECT count(*) FROM fencepost_checkpoints")[0][0])

    def unsettled(self) -> int:
        """Executions that haven't ended, aren't parked, and don't wait for a parked one."""
        rows = self._all(
            "SELECT execution_id, parent_id, status FROM fencepost_executions"
            f" WHERE status NOT IN {ENDED!r}"
        )
        held = {str(row.parent_id) for row in rows if row.status == "parked"}
        for _ in range(3):
            held |= {str(row.parent_id) for row in rows if str(row.execution_id) in held}
        return sum(
            row.status != "parked"
            and not (row.status == "waiting" and str(row.execution_id) in held)
            for row in rows
        )

    def epochs(self) -> dict[str, tuple[int, int]]:
        """Epoch and length of the chain, for each execution."""
        query = "SELECT execution_id, epoch, head_seq FROM fencepost_executions"
        return {str(row.execution_id): (row.epoch, row.head_seq) for row in self._all(query)}

    def newest_checkpoints(self, limit: int = 500) -> dict[str, tuple[str, int, str]]:
        """Step key, epoch and owner of the checkpoints that were written last."""
        query = (
            "SELECT checkpoint_id, step_key, epoch, owner FROM fencepost_checkpoints"
            f" WHERE kind <> 'start' ORDER BY created_at DESC LIMIT {limit}"
        )
        return {str(r.checkpoint_id): (r.step_key, r.epoch, r.owner) for r in self._all(query)}

    def stale_checkpoints(self) -> list[str]:
        """Checkpoints of an epoch that is older than the one before them, in words."""
        query = (
            "SELECT c.step_key, c.epoch, c.owner, p.epoch AS before, p.owner AS by"
            " FROM fencepost_checkpoints c JOIN fencepost_checkpoints p"
            " ON c.parent_checkpoint_id = p.checkpoint_id WHERE c.epoch < p.epoch"
        )
        return [
            f"{r.step_key} was committed by {r.owner} with epoch {r.epoch}, after {r.by} had the"
            f" execution with epoch {r.before}"
            for r in self._all(query)
        ]

    def rows(self) -> list[Row]:
        """What the sinks have."""
        found = [
            Row("ledger", r.reference, r.step_key, r.id, r.epoch, f"{r.owner} at {r.at}")
            for r in self._select(self._database, shop.bookings)
        ]
        found += [
            Row("warehouse", r.reference, r.key, r.id, r.epoch, f"{r.owner} at {r.at}")
            for r in self._select(self._warehouse, warehouse.deliveries)
        ]
        payments = "SELECT mode, reference, key, id, epoch, at FROM payments"
        found += [
            Row(f"bank-{mode}", reference, key, number, epoch, f"somebody at {at}")
            for mode, reference, key, number, epoch, at in self._bank.rows(payments)
        ]
        return found

    @staticmethod
    def _select(engine: sa.Engine, table: sa.Table) -> list[Any]:
        with engine.connect() as connection:
            return list(connection.execute(sa.select(table).order_by(table.c.id)))

    def refusals(self) -> int:
        """Stale calls that the sinks themselves have refused."""
        bank = self._bank.rows("SELECT count(*) FROM requests WHERE status = 412")[0][0]
        with self._warehouse.connect() as connection:
            query = sa.text("SELECT count(*) FROM fencepost_refusals")
            return int(bank) + int(connection.execute(query).scalar_one())

    def facts(self, history: Iterable[Entry], violations: Sequence[str]) -> Facts:
        """All of it."""
        executions = [
            Execution(
                execution_id=str(r.execution_id),
                saga=r.saga,
                status=r.status,
                epoch=r.epoch,
                root_id=str(r.root_id),
                parent_id=str(r.parent_id) if r.parent_id is not None else None,
                business_key=r.business_key,
                parked_reason=r.parked_reason,
                error=r.error,
            )
            for r in self._engine_rows("executions")
        ]
        committed: dict[str, list[int]] = {}
        for r in self._engine_rows("checkpoints"):
            if r.kind in ("step", "undo"):
                committed.setdefault(r.step_key, []).append(r.epoch)
        events = "SELECT name, count(*) AS count FROM fencepost_events GROUP BY name"
        return Facts(
            wanted=wanted(history),
            executions={execution.execution_id: execution for execution in executions},
            effects=[_recorded(r) for r in self._engine_rows("effects")],
            rows=self.rows(),
            committed=committed,
            events=dict(map(tuple, self._all(events))),
            violations=list(violations),
        )

    def _engine_rows(self, table: str) -> list[Any]:
        from fencepost.stores.sql import schema

        return self._select_all(getattr(schema, table))

    def _select_all(self, table: sa.Table) -> list[Any]:
        with self._database.connect() as connection:
            return list(connection.execute(sa.select(table)))


def _recorded(row: Any) -> Recorded:
    result = row.result if isinstance(row.result, dict) else {}
    return Recorded(
        row.sink, row.key, row.effect, row.status, str(row.execution_id), result.get("number")
    )
