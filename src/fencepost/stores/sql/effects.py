"""`SqlEffectStore`: intents, calls and outcomes, fenced by the execution's row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from fencepost import faults, serde
from fencepost.effects.model import (
    UNKNOWN_OUTCOME,
    EffectIntent,
    EffectKind,
    EffectRecord,
    EffectStatus,
    check_same_request,
)
from fencepost.errors import (
    ExecutionLeaseLostError,
    ExecutionNotFoundError,
    ExecutionStateError,
)
from fencepost.fence import FenceToken
from fencepost.records import Event, EventName, Status
from fencepost.stores.sql import rows, statements
from fencepost.stores.sql.executions import SqlExecutionStore
from fencepost.stores.sql.schema import effects, executions
from fencepost.stores.sql.types import now, seconds_since

T = TypeVar("T")

_CLOCKED = ("first_call_at", "last_call_at")
_COLUMNS = [column for column in effects.c if column.name not in _CLOCKED]
_SELECT = sa.select(
    *_COLUMNS,
    seconds_since(effects.c.first_call_at).label("since_first_call"),
    seconds_since(effects.c.last_call_at).label("since_last_call"),
)


class SqlEffectStore:
    """Implements `fencepost.ports.EffectStore`.

    Args:
        executions: The store of the executions, on the same database.
    """

    def __init__(self, executions: SqlExecutionStore) -> None:
        self._executions = executions

    def intend(self, intent: EffectIntent) -> tuple[EffectRecord, bool]:
        """See `EffectStore.intend`."""

        def insert(connection: sa.Connection) -> tuple[EffectRecord, bool]:
            made = connection.execute(_insert(connection, _announced(intent))).first()
            return _find(connection, intent.sink, intent.key), made is not None

        record, created = self._fenced(intent.token, intent.sink, intent.request, insert)
        check_same_request(record, intent)
        return record, created

    def announce(self, token: FenceToken, sink: str, key: str) -> EffectRecord:
        """See `EffectStore.announce`."""
        return self._update(
            token,
            sink,
            key,
            None,
            status=EffectStatus.INTENT,
            calls=effects.c.calls + 1,
            last_call_at=now(),
        )

    def conclude(
        self,
        token: FenceToken,
        sink: str,
        key: str,
        status: EffectStatus,
        *,
        result: Any = None,
        error: Any = None,
    ) -> EffectRecord:
        """See `EffectStore.conclude`."""
        values: dict[str, Any] = {"status": status, "error": error}
        if status is EffectStatus.CONFIRMED:
            values |= {"result": result, "confirmed_at": now()}
        faults.reach("effect.before-conclusion", key=key, status=status)
        record = self._update(token, sink, key, result if result is not None else error, **values)
        faults.reach("effect.after-conclusion", key=key, status=status)
        return record

    def _update(
        self, token: FenceToken, sink: str, key: str, payload: Any, **values: Any
    ) -> EffectRecord:
        update = (
            sa.update(effects)
            .where(effects.c.sink == sink, effects.c.key == key)
            .where(effects.c.status != EffectStatus.CONFIRMED)
            .values(epoch=token.epoch, owner=token.owner, **values)
        )

        def write(connection: sa.Connection) -> EffectRecord:
            connection.execute(update)
            return _find(connection, sink, key)

        return self._fenced(token, sink, payload, write)

    def _fenced(
        self, token: FenceToken, sink: str, payload: Any, write: Callable[[sa.Connection], T]
    ) -> T:
        with self._executions.writing() as connection:
            if _owns(connection, token):
                return write(connection)
        digest = serde.digest(payload) if payload is not None else None
        current = self._executions.refuse(token, EventName.LEASE_LOST, sink, digest)
        raise ExecutionLeaseLostError(
            token.execution_id, held=token.epoch, current=current.epoch, step_key=token.step_key
        )

    def in_session(self, session: Any, sink: str, key: str) -> EffectRecord | None:
        """See `EffectStore.in_session`."""
        row = session.execute(_at(sink, key)).first()
        return _record(row) if row is not None else None

    def confirm_in_session(self, session: Any, intent: EffectIntent, result: Any) -> None:
        """See `EffectStore.confirm_in_session`."""
        values = _announced(intent) | {"status": EffectStatus.CONFIRMED, "result": result}
        session.execute(sa.insert(effects).values(**values, confirmed_at=now()))

    def of_execution(self, execution_id: UUID) -> list[EffectRecord]:
        """See `EffectStore.of_execution`."""
        query = _SELECT.where(effects.c.execution_id == execution_id)
        with self._executions.reading() as connection:
            found = connection.execute(query.order_by(effects.c.created_at, effects.c.key))
            return [_record(row) for row in found]

    def in_doubt(self, limit: int) -> list[EffectRecord]:
        """See `EffectStore.in_doubt`."""
        query = (
            _SELECT.join(executions, executions.c.execution_id == effects.c.execution_id)
            .where(effects.c.status.in_(UNKNOWN_OUTCOME), executions.c.status == Status.PARKED)
            .order_by(effects.c.created_at)
            .limit(limit)
        )
        with self._executions.reading() as connection:
            return [_record(row) for row in connection.execute(query)]

    def resolve(
        self, sink: str, key: str, *, landed: bool, result: Any, by: str, why: str
    ) -> EffectRecord:
        """See `EffectStore.resolve`."""
        status = EffectStatus.CONFIRMED if landed else EffectStatus.NOT_LANDED
        resolution = {"landed": landed, "by": by, "why": why}
        update = (
            sa.update(effects)
            .where(effects.c.sink == sink, effects.c.key == key)
            .where(effects.c.status.in_(UNKNOWN_OUTCOME))
            .where(effects.c.execution_id.in_(_parked()))
            .values(
                status=status,
                result=result if landed else None,
                confirmed_at=now() if landed else None,
                resolution=resolution,
            )
        )
        with self._executions.writing() as connection:
            decided = connection.execute(update).rowcount == 1
            row = connection.execute(_at(sink, key)).first()
            if row is None:
                raise ExecutionNotFoundError(f"with an effect {key!r} at {sink!r}")
            record = _record(row)
            if not decided:
                raise ExecutionStateError(
                    f"effect {key!r} at {sink!r} can't be resolved: it is {record.status}, and only"
                    " what is in doubt in a parked execution can be",
                    status=str(record.status),
                    resolution=record.resolution,
                )
            event = Event(
                execution_id=record.execution_id,
                name=EventName.EFFECT_RESOLVED,
                epoch=record.epoch,
                step_key=record.step_key,
                sink=sink,
                details={"key": key, **resolution},
            )
            connection.execute(statements.INSERT_EVENT, rows.event_values(event))
        return record


def _parked() -> sa.Select[Any]:
    return sa.select(executions.c.execution_id).where(executions.c.status == Status.PARKED)


def _owns(connection: sa.Connection, token: FenceToken) -> bool:
    """Whether the token is the owner's; holds off a takeover until the transaction ends."""
    query = (
        sa.select(executions.c.execution_id)
        .where(
            executions.c.execution_id == token.execution_id,
            executions.c.epoch == token.epoch,
            executions.c.owner == token.owner,
        )
        .with_for_update(read=True)
    )
    return connection.execute(query).first() is not None


def _announced(intent: EffectIntent) -> dict[str, Any]:
    return {
        "sink": intent.sink,
        "key": intent.key,
        "execution_id": intent.token.execution_id,
        "step_key": intent.token.step_key,
        "effect": intent.effect,
        "kind": intent.kind,
        "resource": intent.resource,
        "request": intent.request,
        "request_digest": intent.request_digest,
        "status": EffectStatus.INTENT,
        "epoch": intent.token.epoch,
        "owner": intent.token.owner,
        "calls": 1,
    }


def _insert(connection: sa.Connection, values: dict[str, Any]) -> Any:
    postgres = connection.dialect.name == "postgresql"
    insert = postgresql.insert(effects) if postgres else sqlite.insert(effects)
    return insert.values(**values).on_conflict_do_nothing().returning(effects.c.key)


def _at(sink: str, key: str) -> sa.Select[Any]:
    return _SELECT.where(effects.c.sink == sink, effects.c.key == key)


def _find(connection: sa.Connection, sink: str, key: str) -> EffectRecord:
    return _record(connection.execute(_at(sink, key)).one())


def _record(row: Any) -> EffectRecord:
    values = row._asdict()
    for name in ("since_first_call", "since_last_call"):
        values[name] = timedelta(seconds=float(values[name]))
    values["kind"] = EffectKind(values["kind"])
    values["status"] = EffectStatus(values["status"])
    return EffectRecord(**values)
