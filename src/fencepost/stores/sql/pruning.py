"""Deleting runs that have ended long ago: whole families, with all that is known of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from fencepost.effects.model import UNKNOWN_OUTCOME
from fencepost.errors import PayloadError
from fencepost.records import ENDED, Event, EventName, Status
from fencepost.stores.sql import lines, rows, statements
from fencepost.stores.sql.executions import SqlExecutionStore
from fencepost.stores.sql.schema import (
    checkpoints,
    effects,
    events,
    executions,
    permits,
    signals,
)
from fencepost.stores.sql.statements import LIVE
from fencepost.stores.sql.types import now

EVERYTHING = UUID(int=0)
"""Under this id it is audited that runs were pruned."""

PRUNABLE = frozenset({Status.SUCCEEDED, Status.FAILED, Status.COMPENSATED})
"""How a run may have ended, whatever continued it on the way."""

PAGE = 50
"""Runs that are looked for at a time."""

AT_ONCE = 500
"""Executions that are deleted in one transaction, unless one run has more."""

# What refers to executions comes before them.
TABLES = {
    "signals": signals,
    "permits": permits,
    "effects": effects,
    "events": events,
    "checkpoints": checkpoints,
    "executions": executions,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was deleted; in a dry run: what would be.

    Attributes:
        before: Runs whose last execution had ended before this moment.
        runs: How many.
    """

    before: datetime
    dry_run: bool = False
    runs: int = 0
    executions: int = 0
    checkpoints: int = 0
    effects: int = 0
    events: int = 0
    signals: int = 0
    permits: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Runs, and rows by table."""
        return {name: getattr(self, name) for name in ("runs", *reversed(TABLES))}


def prune(
    store: SqlExecutionStore,
    older_than: timedelta,
    *,
    statuses: Collection[Status] = PRUNABLE,
    by: str,
    why: str,
    dry_run: bool = False,
    progress: Callable[[Pruned], None] = lambda _: None,
) -> Pruned:
    """Delete runs that have ended, in short transactions; a run goes as a whole, or stays.

    Args:
        store: Of any process.
        older_than: Since the end of the last execution of a run, by the database's clock.
        statuses: How the execution that was started, or what continued it, has ended.
        by: Who decides.
        why: Kept in the audit trail.
        dry_run: Only count.
        progress: Told after each transaction.

    Raises:
        PayloadError: The age is negative, or one of the statuses is no end.
        ServiceUnavailableError: The database doesn't answer. What is deleted is audited.
    """
    if older_than < timedelta(0):
        raise PayloadError("an age can't be negative")
    if not set(statuses) <= PRUNABLE:
        raise PayloadError(f"a run ends as one of {', '.join(sorted(PRUNABLE))}")
    with store.reading() as connection:
        before = connection.execute(sa.select(now())).scalar_one() - older_than
    pruning = _Pruning(store, before, frozenset(statuses), by, why, dry_run=dry_run)
    for batch in pruning.batches():
        pruning.take(batch)
        progress(pruning.done)
    return pruning.done


class _Pruning:
    """One pruning.

    Attributes:
        done: So far.
    """

    def __init__(
        self,
        store: SqlExecutionStore,
        before: datetime,
        statuses: frozenset[Status],
        by: str,
        why: str,
        *,
        dry_run: bool,
    ) -> None:
        self._store = store
        self._before = before
        self._statuses = statuses
        self._said = {"by": by, "why": why}
        self._event_id: int | None = None
        self.done = Pruned(before=before, dry_run=dry_run)

    def batches(self) -> Iterator[Sequence[UUID]]:
        """Ids of the roots of runs that can go, a transaction's worth at a time."""
        after: UUID | None = None
        while True:
            with self._store.reading() as connection:
                query = self._candidates().order_by(executions.c.execution_id).limit(PAGE)
                if after is not None:
                    query = query.where(executions.c.execution_id > after)
                page = connection.execute(query).scalars().all()
                sizes = _sizes(connection, page)
            if not page:
                return
            after = page[-1]
            yield from _packed(page, sizes)

    def _candidates(self) -> sa.Select[Any]:
        root = executions.c.execution_id
        member, last, held = (executions.alias(name) for name in ("member", "last", "held"))
        still = sa.exists().where(
            member.c.root_id == root,
            sa.or_(
                member.c.status.in_(LIVE),
                member.c.ended_at.is_(None),
                member.c.ended_at >= self._before,
            ),
        )
        ended_so = sa.exists().where(
            last.c.root_id == root, last.c.lineage_id == root, last.c.status.in_(self._statuses)
        )
        in_doubt = sa.exists().where(
            held.c.root_id == root,
            effects.c.execution_id == held.c.execution_id,
            effects.c.status.in_(UNKNOWN_OUTCOME),
        )
        return sa.select(root).where(
            executions.c.root_id == root,
            executions.c.status.in_(ENDED),
            executions.c.ended_at < self._before,
            ~still,
            ended_so,
            ~in_doubt,
        )

    def take(self, roots: Sequence[UUID]) -> None:
        """Delete these runs, or count them."""
        if self.done.dry_run:
            with self._store.reading() as connection:
                members = _members(connection, roots)
                self._count(connection, roots, [m for chosen in members.values() for m in chosen])
            return
        with self._store.writing() as connection:
            chosen = self._locked(connection, roots)
            members_of = [member for members in chosen.values() for member in members]
            if members_of:
                done = self._delete(connection, list(chosen), members_of)
                self._audit(connection, done)
                self.done = done

    def _locked(self, connection: sa.Connection, roots: Sequence[UUID]) -> dict[UUID, list[UUID]]:
        """Those runs that can still go, and that nobody else has his hands on."""
        locked = _members(connection, roots, lock=True)
        sizes = _sizes(connection, roots)
        again = self._candidates().where(executions.c.execution_id.in_(roots))
        still = set(connection.execute(again).scalars())
        return {
            root: members
            for root, members in locked.items()
            if root in still and len(members) == sizes[root]
        }

    def _delete(
        self, connection: sa.Connection, roots: Sequence[UUID], members: Sequence[UUID]
    ) -> Pruned:
        counts = dict.fromkeys(TABLES, 0)
        for name, table in TABLES.items():
            for chunk in lines.chunks(members):
                delete = sa.delete(table).where(table.c.execution_id.in_(chunk))
                counts[name] += connection.execute(delete).rowcount
        return self._with(len(roots), counts)

    def _count(
        self, connection: sa.Connection, roots: Sequence[UUID], members: Sequence[UUID]
    ) -> None:
        counts = dict.fromkeys(TABLES, 0)
        for name, table in TABLES.items():
            for chunk in lines.chunks(members):
                counted = sa.select(sa.func.count()).where(table.c.execution_id.in_(chunk))
                counts[name] += connection.execute(counted).scalar_one()
        self.done = self._with(len(roots), counts)

    def _with(self, runs: int, counts: dict[str, int]) -> Pruned:
        sums = {name: getattr(self.done, name) + number for name, number in counts.items()}
        return replace(self.done, runs=self.done.runs + runs, **sums)

    def _audit(self, connection: sa.Connection, done: Pruned) -> None:
        """One event for all, which always tells of what is committed."""
        details = {"before": self._before.isoformat(), **done.counts, **self._said}
        event = Event(execution_id=EVERYTHING, name=EventName.PRUNED, epoch=0, details=details)
        if self._event_id is None:
            insert = statements.INSERT_EVENT.returning(events.c.event_id)
            self._event_id = connection.execute(insert, rows.event_values(event)).scalar_one()
            return
        connection.execute(
            sa.update(events).where(events.c.event_id == self._event_id).values(details=details)
        )


def _sizes(connection: sa.Connection, roots: Sequence[UUID]) -> dict[UUID, int]:
    query = (
        sa.select(executions.c.root_id, sa.func.count().label("size"))
        .where(executions.c.root_id.in_(roots))
        .group_by(executions.c.root_id)
    )
    return {row.root_id: row.size for row in connection.execute(query)}


def _packed(page: Sequence[UUID], sizes: dict[UUID, int]) -> Iterator[Sequence[UUID]]:
    batch: list[UUID] = []
    size = 0
    for root in page:
        if batch and size + sizes[root] > AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(root)
        size += sizes[root]
    if batch:
        yield batch


def _members(
    connection: sa.Connection, roots: Sequence[UUID], *, lock: bool = False
) -> dict[UUID, list[UUID]]:
    """The executions of runs; with `lock`, those of them that nobody else has locked."""
    query = (
        sa.select(executions.c.root_id, executions.c.execution_id)
        .where(executions.c.root_id.in_(roots))
        .order_by(executions.c.execution_id)
    )
    if lock:
        query = query.with_for_update(skip_locked=True)
    members: dict[UUID, list[UUID]] = {}
    for root, member in connection.execute(query):
        members.setdefault(root, []).append(member)
    return members
