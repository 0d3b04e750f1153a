"""The effect store in memory, over the execution store's tables and under its mutex."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fencepost import faults, serde
from fencepost.effects.model import (
    NOTHING_LANDED,
    UNKNOWN_OUTCOME,
    EffectIntent,
    EffectRecord,
    EffectStatus,
    check_same_request,
    in_doubt,
    not_resolvable,
    resolved,
)
from fencepost.errors import EffectNotFoundError, ServiceUnavailableError
from fencepost.fence import FenceToken
from fencepost.records import Status
from fencepost.stores.memory.tables import EffectRow, Tables, stored

if TYPE_CHECKING:
    from fencepost.stores.memory.executions import MemoryExecutionStore
    from fencepost.stores.memory.transactions import MemorySession

_CONFIRMED = frozenset({EffectStatus.CONFIRMED})
_UNCONFIRMED = frozenset(EffectStatus) - _CONFIRMED


class MemoryEffectStore:
    """Implements `fencepost.ports.EffectStore`. Ages are counted by the executions' clock.

    Args:
        executions: The store of the executions.
    """

    def __init__(self, executions: MemoryExecutionStore) -> None:
        self._executions = executions

    def intend(self, intent: EffectIntent) -> tuple[EffectRecord, bool]:
        """See `EffectStore.intend`."""
        token, place = intent.token, (intent.sink, intent.key)
        with self._executions.owned(token, intent.sink, intent.request_digest) as (tables, now, at):
            row = tables.effects.get(place)
            if row is None:
                row = tables.effects[place] = EffectRow(_announced(intent, at), now, now)
                return row.as_of(now), True
            check_same_request(row.effect, intent)
            if row.effect.status not in NOTHING_LANDED:
                return row.as_of(now), False
            calls = row.effect.calls + 1
            again = _announced(intent, row.effect.created_at, calls=calls)
            row = tables.effects[place] = EffectRow(again, now, now)
            return row.as_of(now), True

    def announce(self, token: FenceToken, sink: str, key: str) -> EffectRecord:
        """See `EffectStore.announce`."""
        with self._executions.owned(token, sink, serde.digest(None)) as (tables, now, _):
            row = tables.effects[sink, key]
            if _ours(row, token, UNKNOWN_OUTCOME):
                row.last_call_at = now
                row.update(
                    status=EffectStatus.INTENT,
                    calls=row.effect.calls + 1,
                    epoch=token.epoch,
                    owner=token.owner,
                )
            return row.as_of(now)

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
        changes: dict[str, Any] = {"status": status, "error": stored(error)}
        confirmed = status is EffectStatus.CONFIRMED
        faults.reach("effect.before-conclusion", key=key, status=status)
        digest = serde.digest(result if confirmed else error)
        with self._executions.owned(token, sink, digest) as (tables, now, at):
            row = tables.effects[sink, key]
            if _ours(row, token, _UNCONFIRMED):
                if confirmed:
                    changes |= {"result": stored(result), "confirmed_at": at}
                self._change(tables, row, token, at, changes)
            record = row.as_of(now)
        faults.reach("effect.after-conclusion", key=key, status=status)
        return record

    def reopen(self, token: FenceToken, sink: str, key: str, error: Any) -> EffectRecord:
        """See `EffectStore.reopen`."""
        changes = {
            "status": EffectStatus.IN_DOUBT,
            "error": stored(error),
            "result": None,
            "confirmed_at": None,
        }
        with self._executions.owned(token, sink, serde.digest(error)) as (tables, now, at):
            row = tables.effects[sink, key]
            if _ours(row, token, _CONFIRMED) and row.effect.resolution is not None:
                self._change(tables, row, token, at, changes)
            return row.as_of(now)

    def _change(
        self,
        tables: Tables,
        row: EffectRow,
        token: FenceToken,
        at: datetime,
        changes: dict[str, Any],
    ) -> None:
        row.update(epoch=token.epoch, owner=token.owner, **changes)
        if row.effect.status is EffectStatus.IN_DOUBT:
            tables.add_event(in_doubt(row.effect, token), at)

    @contextmanager
    def in_session(
        self, session: MemorySession, intent: EffectIntent
    ) -> Iterator[EffectRecord | None]:
        """See `EffectStore.in_session`. Waits for nobody: of two, the later commit is refused."""
        with session.begin_nested():
            yield self._seen(session, intent)

    def _seen(self, session: MemorySession, intent: EffectIntent) -> EffectRecord | None:
        with self._executions.locked() as (tables, now, at):
            row = tables.effects.get((intent.sink, intent.key))
            if row is not None:
                return row.as_of(now)
            for pending, result in session.effects:
                if (pending.sink, pending.key) == (intent.sink, intent.key):
                    return _confirmed(pending, result, at)
        return None

    def confirm_in_session(self, session: MemorySession, intent: EffectIntent, result: Any) -> None:
        """See `EffectStore.confirm_in_session`."""
        session.effects.append((intent, stored(result)))

    def find(self, sink: str, key: str) -> EffectRecord | None:
        """See `EffectStore.find`."""
        with self._executions.locked() as (tables, now, _):
            row = tables.effects.get((sink, key))
            return None if row is None else row.as_of(now)

    def of_execution(self, execution_id: UUID) -> list[EffectRecord]:
        """See `EffectStore.of_execution`."""
        with self._executions.locked() as (tables, now, _):
            found = (row.as_of(now) for row in tables.effects.values())
            return _oldest_first(e for e in found if e.execution_id == execution_id)

    def in_doubt(self, limit: int) -> list[EffectRecord]:
        """See `EffectStore.in_doubt`."""
        with self._executions.locked() as (tables, now, _):
            found = _oldest_first(
                row.as_of(now)
                for row in tables.effects.values()
                if row.effect.status in UNKNOWN_OUTCOME
                and _status(tables, row.effect) is Status.PARKED
            )
            return found[:limit]

    def resolve(
        self, sink: str, key: str, *, landed: bool, result: Any, by: str, why: str
    ) -> EffectRecord:
        """See `EffectStore.resolve`."""
        with self._executions.locked() as (tables, now, at):
            row = tables.effects.get((sink, key))
            if row is None:
                raise EffectNotFoundError(sink, key)
            execution = _status(tables, row.effect)
            if execution is not Status.PARKED or row.effect.status not in UNKNOWN_OUTCOME:
                raise not_resolvable(row.effect, execution)
            row.update(
                status=EffectStatus.CONFIRMED if landed else EffectStatus.NOT_LANDED,
                result=stored(result) if landed else None,
                confirmed_at=at if landed else None,
                resolution={"landed": landed, "by": by, "why": why},
            )
            tables.add_event(resolved(row.effect), at)
            return row.as_of(now)


def check_free(tables: Tables, session: MemorySession) -> None:
    """No other transaction has taken a key that this one is about to record.

    Raises:
        ServiceUnavailableError: One has; run again, the step finds its result.
    """
    for intent, _ in session.effects:
        if (intent.sink, intent.key) in tables.effects:
            raise ServiceUnavailableError(
                f"key {intent.key!r} at sink {intent.sink!r} was taken by another transaction"
            )


def land(tables: Tables, session: MemorySession, now: float, at: datetime) -> None:
    """Record a committed session's effects."""
    for intent, result in session.effects:
        row = EffectRow(_confirmed(intent, result, at), now, now)
        tables.effects[intent.sink, intent.key] = row


def _ours(row: EffectRow, token: FenceToken, where: frozenset[EffectStatus]) -> bool:
    return row.effect.execution_id == token.execution_id and row.effect.status in where


def _status(tables: Tables, effect: EffectRecord) -> Status:
    return tables.rows[effect.execution_id].execution.status


def _oldest_first(effects: Iterator[EffectRecord]) -> list[EffectRecord]:
    return sorted(effects, key=lambda effect: (effect.created_at, effect.key))


def _announced(intent: EffectIntent, at: datetime, *, calls: int = 1) -> EffectRecord:
    return EffectRecord(
        sink=intent.sink,
        key=intent.key,
        execution_id=intent.token.execution_id,
        step_key=intent.token.step_key,
        effect=intent.effect,
        kind=intent.kind,
        resource=intent.resource,
        request=stored(intent.request),
        request_digest=intent.request_digest,
        status=EffectStatus.INTENT,
        result=None,
        error=None,
        epoch=intent.token.epoch,
        owner=intent.token.owner,
        calls=calls,
        since_first_call=timedelta(0),
        since_last_call=timedelta(0),
        created_at=at,
        confirmed_at=None,
        resolution=None,
    )


def _confirmed(intent: EffectIntent, result: Any, at: datetime) -> EffectRecord:
    announced = _announced(intent, at)
    return replace(announced, status=EffectStatus.CONFIRMED, result=result, confirmed_at=at)
