"""Every statement that writes, built once. Builders build, the store executes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from fencepost.fence import FenceToken
from fencepost.records import ENDED, Commit, Execution, Phase, Status
from fencepost.stores.sql.schema import checkpoints, events, executions
from fencepost.stores.sql.types import Json, after, now

LIVE = tuple(sorted(set(Status) - ENDED))
OWNED_AFTER = (Status.ACTIVE,)
MAX_DOUBLINGS = 5
"""The reaper's wait for a row grows to 2**5 times the first one, and no further."""


def _fenced() -> sa.ColumnElement[bool]:
    return sa.and_(
        executions.c.execution_id == sa.bindparam("held_execution_id", type_=sa.Uuid),
        executions.c.epoch == sa.bindparam("held_epoch", type_=sa.BigInteger),
        executions.c.owner == sa.bindparam("held_owner", type_=sa.String),
    )


def held(token: FenceToken) -> dict[str, Any]:
    """Parameters of the fence: whose write it is."""
    return {
        "held_execution_id": token.execution_id,
        "held_epoch": token.epoch,
        "held_owner": token.owner,
    }


def _advance() -> sa.Update:
    ended = sa.bindparam("ends", type_=sa.Boolean)
    return (
        sa.update(executions)
        .where(_fenced(), executions.c.head == sa.bindparam("held_head", type_=sa.Uuid))
        .values(
            head=sa.bindparam("new_head", type_=sa.Uuid),
            head_seq=sa.bindparam("new_seq", type_=sa.Integer),
            status=sa.bindparam("new_status", type_=sa.String),
            phase=sa.bindparam("new_phase", type_=sa.String),
            epoch=executions.c.epoch + sa.bindparam("raise_by", type_=sa.BigInteger),
            owner=sa.case(
                (sa.bindparam("keeps_owner", type_=sa.Boolean), executions.c.owner),
                else_=sa.null(),
            ),
            max_concurrency=sa.bindparam("new_max_concurrency", type_=sa.Integer),
            result=sa.bindparam("new_result", type_=Json),
            error=sa.bindparam("new_error", type_=Json),
            recoveries=0,
            attempt=0,
            dispatches=0,
            due_at=sa.case((ended, sa.null()), else_=after(sa.bindparam("due_in", type_=sa.Float))),
            ended_at=sa.case((ended, now()), else_=sa.null()),
        )
    )


ADVANCE = _advance()
"""Move the head of a chain, only for its owner and only from the expected head."""


def advance_values(commit: Commit) -> dict[str, Any]:
    """Parameters of `ADVANCE`."""
    return held(commit.token) | {
        "held_head": commit.parent,
        "new_head": commit.checkpoint_id,
        "new_seq": commit.seq,
        "new_status": commit.status,
        "new_phase": commit.phase,
        "raise_by": int(commit.raise_epochs),
        "keeps_owner": commit.status in OWNED_AFTER,
        "new_max_concurrency": commit.max_concurrency,
        "new_result": commit.outcome,
        "new_error": commit.error,
        "due_in": commit.due_in.total_seconds(),
        "ends": commit.status.ended,
    }


def _extend_chain() -> sa.Insert:
    owned = ADVANCE.returning(executions.c.execution_id).cte("owned")
    names = [c.name for c in checkpoints.c if c.name not in ("execution_id", "created_at")]
    source = sa.select(
        owned.c.execution_id,
        now().label("created_at"),
        *(
            sa.cast(
                sa.bindparam(f"cp_{name}", type_=checkpoints.c[name].type), checkpoints.c[name].type
            )
            for name in names
        ),
    )
    return (
        sa.insert(checkpoints)
        .from_select(["execution_id", "created_at", *names], source)
        .returning(*checkpoints.c)
        .add_cte(owned)
    )


EXTEND_CHAIN = _extend_chain()
"""PostgreSQL: fence, head and checkpoint in one statement. No row back means refused."""


def prefixed(values: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint's values as parameters of `EXTEND_CHAIN`."""
    return {f"cp_{name}": value for name, value in values.items() if name != "execution_id"}


INSERT_CHECKPOINT = sa.insert(checkpoints).returning(*checkpoints.c)
INSERT_EVENT = sa.insert(events)


def hand_back(**extra: Any) -> sa.Update:
    """Give up ownership without a checkpoint, if it is still ours."""
    return (
        sa.update(executions)
        .where(_fenced())
        .values(
            owner=None,
            dispatches=0,
            due_at=after(sa.bindparam("due_in", type_=sa.Float)),
            **extra,
        )
    )


def live_children(parent: Any) -> sa.Exists:
    """Whether any child of an execution may still run."""
    child = executions.alias("child")
    return sa.exists().where(child.c.parent_id == parent, child.c.status.in_(LIVE))


def take(
    execution_id: UUID, owner: str, epoch: int, due_in: float, *, taken_over: bool
) -> sa.Update:
    """Become the owner. The caller holds the row's lock."""
    return (
        sa.update(executions)
        .where(executions.c.execution_id == execution_id, executions.c.epoch < epoch)
        .values(
            epoch=epoch,
            owner=owner,
            status=Status.ACTIVE,
            recoveries=executions.c.recoveries + int(taken_over),
            dispatches=0,
            due_at=after(sa.literal(due_in)),
        )
    )


def _next_wait(hold: float) -> Any:
    doublings = sa.case(
        (executions.c.dispatches > MAX_DOUBLINGS, MAX_DOUBLINGS), else_=executions.c.dispatches
    )
    factor = sa.literal(1).bitwise_lshift(doublings)
    return after(sa.literal(hold) * factor)


def claim(which: sa.Select[Any], hold: float) -> sa.Update:
    """Hide rows from other reapers for a while that doubles with each claim."""
    # A CTE is evaluated once. As a plain subquery PostgreSQL may run the selection again for each
    # row, and with SKIP LOCKED then claim more than its limit.
    chosen = which.cte("chosen")
    return (
        sa.update(executions)
        .where(executions.c.execution_id.in_(sa.select(chosen.c.execution_id)))
        .values(due_at=_next_wait(hold), dispatches=executions.c.dispatches + 1)
    )


def active_among(execution_ids: Sequence[UUID]) -> sa.Select[Any]:
    """Those of these executions to which work is owed."""
    return (
        sa.select(executions.c.execution_id)
        .where(executions.c.execution_id.in_(execution_ids))
        .where(executions.c.status == Status.ACTIVE)
        .order_by(executions.c.execution_id)
        .with_for_update()
    )


def due(limit: int) -> sa.Select[Any]:
    """Executions to which work is owed, and whose time has come."""
    return (
        sa.select(executions.c.execution_id)
        .where(executions.c.status == Status.ACTIVE, executions.c.due_at <= now())
        .order_by(executions.c.due_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )


def joinable(limit: int) -> sa.Select[Any]:
    """Waiting parents whose children have all ended, or that have places to fill."""
    child = executions.alias("placed")
    placed = (
        sa.select(sa.func.count())
        .select_from(child)
        .where(
            child.c.parent_id == executions.c.execution_id,
            child.c.status.in_((Status.ACTIVE, Status.WAITING)),
        )
        .scalar_subquery()
    )
    queued = executions.alias("queued")
    has_queue = sa.exists().where(
        queued.c.parent_id == executions.c.execution_id, queued.c.status == Status.QUEUED
    )
    return (
        sa.select(executions.c.execution_id)
        .where(
            executions.c.status == Status.WAITING,
            executions.c.due_at <= now(),
            sa.or_(
                ~live_children(executions.c.execution_id),
                sa.and_(
                    has_queue,
                    placed < sa.func.coalesce(executions.c.max_concurrency, placed + 1),
                ),
            ),
        )
        .order_by(executions.c.due_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )


def raise_epochs_of(parents: list[UUID]) -> sa.Update:
    """Fence out whoever runs a child of these, now or later; nobody owns it any more."""
    live = executions.c.status.in_(LIVE)
    return (
        sa.update(executions)
        .where(executions.c.parent_id.in_(parents))
        .values(
            epoch=executions.c.epoch + 1,
            owner=None,
            phase=Phase.COMPENSATING,
            status=sa.case((live, str(Status.WAITING)), else_=executions.c.status),
            due_at=None,
        )
        .returning(executions.c.execution_id, executions.c.epoch, executions.c.head_seq)
    )


def undo_children(parent: UUID, step: str, visit: int) -> sa.Update:
    """Queue the children of a fan-out for their own compensation."""
    return (
        sa.update(executions)
        .where(
            executions.c.parent_id == parent,
            executions.c.parent_step == step,
            executions.c.parent_visit == visit,
            executions.c.phase == Phase.COMPENSATING,
            executions.c.status.in_((Status.SUCCEEDED, Status.WAITING, Status.PARKED)),
        )
        .values(status=Status.QUEUED, ended_at=None, dispatches=0, due_at=None)
    )


def insert_execution(due_in: float | None) -> sa.Insert:
    """Insert executions that are to be dispatched, or (None) children that wait for a place."""
    insert = sa.insert(executions)
    return insert if due_in is None else insert.values(due_at=after(sa.literal(due_in)))


def create_execution(dialect: str, due_in: float) -> sa.Executable:
    """Insert an execution unless its id, or its business key, is there already."""
    table, first_look = executions, after(sa.literal(due_in))
    if dialect == "postgresql":
        upsert = postgresql.insert(table).values(due_at=first_look).on_conflict_do_nothing()
        return upsert.returning(table.c.execution_id)
    insert = sqlite.insert(table).values(due_at=first_look).on_conflict_do_nothing()
    return insert.returning(table.c.execution_id)


def unpark(parked: Execution) -> sa.Update:
    """Let a parked execution go on: at once, or through its parent's cap."""
    capped = parked.parent_id is not None
    return (
        sa.update(executions)
        .where(executions.c.execution_id == parked.execution_id)
        .values(
            status=Status.QUEUED if capped else Status.ACTIVE,
            due_at=None if capped else now(),
            parked_reason=None,
            error=None,
            attempt=0,
            recoveries=0,
            dispatches=0,
        )
    )
