"""Checkpoints and events as the stores would give them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from coordinator.watch import Fact
from fencepost.records import (
    Checkpoint,
    CheckpointKind,
    Event,
    EventName,
    Execution,
    Phase,
    Status,
)

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_ids = count(1)


def execution(
    module: str | None = None, *, attempt: int = 1, status: Status = Status.ACTIVE, **more: Any
) -> Execution:
    """A release, or with a name one of its modules."""
    values: dict[str, Any] = dict.fromkeys(Execution.__slots__)
    identity = uuid4()
    values |= {
        "execution_id": identity,
        "saga": "release" if module is None else "module",
        "lineage_id": identity,
        "root_id": identity,
        "parent_id": None if module is None else UUID(int=1),
        "status": status,
        "phase": Phase.FORWARD,
        "epoch": 1,
        "head_seq": 0,
        "input": {"attempt": attempt, "name": "shop", "version": "1", "flags": []},
        "created_at": BEGAN,
    }
    if module is not None:
        values["input"] |= {"module": {"name": module}}
    return Execution(**values | more)


def checkpoint(
    of: Execution,
    kind: CheckpointKind,
    step: str,
    *,
    owner: str = "worker-a@host:1:x",
    epoch: int = 1,
    result: Any = None,
    at: float = 0.0,
) -> Fact:
    """A committed checkpoint of an execution."""
    moment = BEGAN + timedelta(seconds=at)
    entry = Checkpoint(
        checkpoint_id=uuid4(),
        execution_id=of.execution_id,
        seq=1,
        parent_checkpoint_id=None,
        kind=kind,
        step=step,
        visit=1,
        step_key=f"{of.execution_id}:{step}:1",
        epoch=epoch,
        owner=owner,
        attempt=1,
        result=result,
        created_at=moment,
    )
    return Fact(moment, of, entry)


def event(
    of: Execution,
    name: EventName,
    *,
    epoch: int = 1,
    owner: str | None = "worker-a@host:1:x",
    at: float = 0.0,
    **more: Any,
) -> Fact:
    """An audit event of an execution."""
    moment = BEGAN + timedelta(seconds=at)
    entry = Event(
        execution_id=of.execution_id,
        name=name,
        epoch=epoch,
        owner=owner,
        at=moment,
        event_id=next(_ids),
        **more,
    )
    return Fact(moment, of, entry)
