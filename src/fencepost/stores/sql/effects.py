"""`SqlEffectStore`: intents, calls and outcomes, fenced by the execution's row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from fencepost import faults, serde
from fencepost.effects.model import (
    NOTHING_LANDED,
    UNKNOWN_OUTCOME,
    EffectIntent,
    EffectKind,
    EffectRecord,
    EffectStatus,
    check_same_request,
    in_doubt,
    not_resolvable,
    resolved,
)
from fencepost.errors import EffectNotFoundError, ExecutionLeaseLostError
from fencepost.fence import FenceToken
from fencepost.records import EventName, Status
from fencepost.stores.sql import lines, rows, statements
from fencepost.stores.sql.executions import SqlExecutionStore
from fencepost.stores.sql.schema import effects, executions
from fencepost.stores.sql.types import now, seconds_since

T = TypeVar("T")

_CONFIRMED = frozenset({EffectStatus.CONFIRMED})
_UNCONFIRMED = frozenset(EffectStatus) - _CONFIRMED

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
        values = _announced(intent)

        def write(connection: sa.Connection) -> tuple[EffectRecord, bool]:
            made = connection.execute(_insert(connection, values)).first() is not None
            record = _find(connection, intent.sink, intent.key)
            check_same_request(record, intent)
            if made or record.status not in NOTHING_LANDED:
                return record, made
            again = values | {"calls": effects.c.calls + 1, "result": None, "error": None}
            taken = connection.execute(
                _change(intent.sink, intent.key, NOTHING_LANDED).values(
                    **again, first_call_at=now(), last_call_at=now(), resolution=None
                )
            )
            return _find(connection, intent.sink, intent.key), taken.rowcount == 1

        return self._fenced(intent.token, intent.sink, intent.request_digest, write)

    def announce(self, token: FenceToken, sink: str, key: str) -> EffectRecord:
        """See `EffectStore.announce`."""
        return self._update(
            token,
            sink,
            key,
            UNKNOWN_OUTCOME,
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
        payload = error
        if status is EffectStatus.CONFIRMED:
            values |= {"result": result, "confirmed_at": now()}
            payload = result
        faults.reach("effect.before-conclusion", key=key, status=status)
        record = self._update(token, sink, key, _UNCONFIRMED, payload, **values)
        faults.reach("effect.after-conclusion", key=key, status=status)
        return record

    def reopen(self, token: FenceToken, sink: str, key: str, error: Any) -> EffectRecord:
        """See `EffectStore.reopen`."""
        decided = effects.c.resolution.is_not(None)
        values = {"status": EffectStatus.IN_DOUBT, "result": None, "confirmed_at": None}
        return self._update(token, sink, key, _CONFIRMED, error, decided, error=error, **values)

    def _update(
        self,
        token: FenceToken,
        sink: str,
        key: str,
        where: frozenset[EffectStatus],
        payload: Any,
        *also: sa.ColumnElement[bool],
        **values: Any,
    ) -> EffectRecord:
        update = (
            _change(sink, key, where)
            .where(effects.c.execution_id == token.execution_id, *also)
            .values(epoch=token.epoch, owner=token.owner, **values)
        )

        def write(connection: sa.Connection) -> EffectRecord:
            changed = connection.execute(update).rowcount == 1
            record = _find(connection, sink, key)
            if changed and record.status is EffectStatus.IN_DOUBT:
                event = in_doubt(record, token)
                connection.execute(statements.INSERT_EVENT, rows.event_values(event))
            return record

        return self._fenced(token, sink, serde.digest(payload), write)

    def _fenced(
        self, token: FenceToken, sink: str, digest: str, write: Callable[[sa.Connection], T]
    ) -> T:
        with self._executions.writing() as connection:
            if _owns(connection, token):
                return write(connection)
        current = self._executions.refuse(token, EventName.LEASE_LOST, sink, digest)
        raise ExecutionLeaseLostError(
            token.execution_id, held=token.epoch, current=current.epoch, step_key=token.step_key
        )

    @contextmanager
    def in_session(self, session: Any, intent: EffectIntent) -> Iterator[EffectRecord | None]:
        """See `EffectStore.in_session`."""
        with session.begin_nested():
            insert = _insert(session.connection(), _announced(intent))
            if session.execute(insert).first() is not None:
                yield None
            else:
                yield _record(session.execute(_at(intent.sink, intent.key)).one())

    def confirm_in_session(self, session: Any, intent: EffectIntent, result: Any) -> None:
        """See `EffectStore.confirm_in_session`."""
        confirm = _change(intent.sink, intent.key, UNKNOWN_OUTCOME).values(
            status=EffectStatus.CONFIRMED, result=result, confirmed_at=now()
        )
        session.execute(confirm)

    def find(self, sink: str, key: str) -> EffectRecord | None:
        """See `EffectStore.find`."""
        with self._executions.reading() as connection:
            row = connection.execute(_at(sink, key)).first()
        return None if row is None else _record(row)

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
        resolution = {"landed": landed, "by": by, "why": why}
        values = {
            "status": EffectStatus.CONFIRMED if landed else EffectStatus.NOT_LANDED,
            "result": result if landed else None,
            "confirmed_at": now() if landed else None,
            "resolution": resolution,
        }
        with self._executions.writing() as connection:
            row = connection.execute(_at(sink, key)).first()
            if row is None:
                raise EffectNotFoundError(sink, key)
            # The lock keeps a parked execution parked until the decision is written.
            execution = lines.lock(connection, row.execution_id)
            parked = execution.status is Status.PARKED
            change = _change(sink, key, UNKNOWN_OUTCOME).values(**values)
            update = change.where(effects.c.execution_id == row.execution_id)
            decided = parked and connection.execute(update).rowcount == 1
            record = _find(connection, sink, key)
            if not decided:
                raise not_resolvable(record, execution.status)
            event = resolved(record)
            connection.execute(statements.INSERT_EVENT, rows.event_values(event))
        return record


def _change(sink: str, key: str, where: frozenset[EffectStatus]) -> sa.Update:
    return sa.update(effects).where(
        effects.c.sink == sink, effects.c.key == key, effects.c.status.in_(where)
    )


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
