"""Statements of one execution and its chain. Builders build, the store executes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from fencepost.fence import FenceToken
from fencepost.records import ENDED, CheckpointKind, Commit, Execution, Status
from fencepost.stores.sql.schema import checkpoints, events, executions
from fencepost.stores.sql.types import Json, UtcDateTime, after, now

LIVE = tuple(sorted(set(Status) - ENDED))
OWNED_AFTER = (Status.ACTIVE,)


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
    wakes_at = sa.func.coalesce(
        after(sa.bindparam("wakes_in", type_=sa.Float)),
        sa.bindparam("wakes_at", type_=UtcDateTime),
        type_=UtcDateTime,
    )
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
            queue=sa.bindparam("new_queue", type_=sa.String),
            wake_at=wakes_at,
            waits_for=sa.bindparam("new_waits_for", type_=sa.String),
            wakes_at_failures=sa.bindparam("new_wakes_at_failures", type_=sa.Integer),
            wakes_at_successes=sa.bindparam("new_wakes_at_successes", type_=sa.Integer),
            turned_back=sa.case(
                (sa.bindparam("has_turned_back", type_=sa.Boolean), sa.null()),
                else_=executions.c.turned_back,
            ),
            directive=sa.null(),
            result=sa.bindparam("new_result", type_=Json),
            error=sa.bindparam("new_error", type_=Json),
            recoveries=0,
            attempt=0,
            dispatches=0,
            due_at=sa.case(
                (sa.bindparam("never_due", type_=sa.Boolean), sa.null()),
                else_=sa.func.coalesce(wakes_at, after(sa.bindparam("due_in", type_=sa.Float))),
            ),
            ended_at=sa.case((ended, now()), else_=sa.null()),
        )
    )


ADVANCE = _advance()
"""Move the head of a chain, only for its owner and only from the expected head."""


def advance_values(commit: Commit) -> dict[str, Any]:
    """Parameters of `ADVANCE`."""
    timed = commit.wake_in is not None or commit.wake_at is not None
    only_a_signal = commit.waits_for is not None and not timed
    return held(commit.token) | {
        "held_head": commit.parent,
        "new_head": commit.checkpoint_id,
        "new_seq": commit.seq,
        "new_status": commit.status,
        "new_phase": commit.phase,
        "raise_by": int(commit.raise_epochs),
        "keeps_owner": commit.status in OWNED_AFTER,
        "new_max_concurrency": commit.max_concurrency,
        "new_queue": commit.queue,
        "wakes_in": None if commit.wake_in is None else commit.wake_in.total_seconds(),
        "wakes_at": commit.wake_at,
        "new_waits_for": commit.waits_for,
        "new_wakes_at_failures": commit.wakes_at_failures,
        "new_wakes_at_successes": commit.wakes_at_successes,
        "has_turned_back": commit.kind is CheckpointKind.COMPENSATING or commit.status.ended,
        "new_result": commit.outcome,
        "new_error": commit.error,
        "due_in": commit.due_in.total_seconds(),
        "ends": commit.status.ended,
        "never_due": commit.status.ended or only_a_signal,
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


def wait_on() -> sa.Update:
    """Give up ownership and wait as before, if it is still ours."""
    return (
        sa.update(executions)
        .where(_fenced())
        .values(
            owner=None,
            status=Status.WAITING,
            dispatches=0,
            due_at=sa.case(
                (executions.c.wake_at.is_not(None), executions.c.wake_at),
                (executions.c.waits_for.is_not(None), sa.null()),
                else_=now(),
            ),
        )
    )


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


def _deadline() -> sa.ColumnElement[Any]:
    return sa.func.coalesce(
        after(sa.bindparam("deadline_seconds", type_=sa.Float)),
        sa.bindparam("deadline_moment", type_=UtcDateTime),
        type_=UtcDateTime,
    )


def insert_execution(due_in: float | None) -> sa.Insert:
    """Insert executions that are to be dispatched, or (None) children that wait for a place."""
    insert = sa.insert(executions).values(deadline_at=_deadline())
    return insert if due_in is None else insert.values(due_at=after(sa.literal(due_in)))


def create_execution(dialect: str, due_in: float) -> sa.Executable:
    """Insert an execution unless its id, or its business key, is there already."""
    table = executions
    values = {"due_at": after(sa.literal(due_in)), "deadline_at": _deadline()}
    if dialect == "postgresql":
        upsert = postgresql.insert(table).values(values).on_conflict_do_nothing()
        return upsert.returning(table.c.execution_id)
    insert = sqlite.insert(table).values(values).on_conflict_do_nothing()
    return insert.returning(table.c.execution_id)


def go_on(execution: Execution, *, queued: bool, **values: Any) -> sa.Update:
    """Let an execution go on by a decision: at once, or through its parent's cap."""
    return (
        sa.update(executions)
        .where(executions.c.execution_id == execution.execution_id)
        .values(
            status=Status.QUEUED if queued else Status.ACTIVE,
            due_at=None if queued else now(),
            parked_reason=None,
            error=None,
            attempt=0,
            recoveries=0,
            dispatches=0,
            **values,
        )
    )
