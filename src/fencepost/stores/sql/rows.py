"""Rows to records and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from fencepost import identity
from fencepost.records import (
    Checkpoint,
    CheckpointKind,
    Commit,
    Event,
    EventName,
    Execution,
    NewExecution,
    Phase,
    SentSignal,
    Status,
)
from fencepost.stores.sql import schema

EXECUTION_COLUMNS = [schema.executions.c[name] for name in Execution.__slots__]
SIGNAL_COLUMNS = [schema.signals.c[name] for name in SentSignal.__slots__]
START_STEP = "start"


def execution(row: Sequence[Any]) -> Execution:
    """An execution from a row of `EXECUTION_COLUMNS`, and of others after those."""
    values = dict(zip(Execution.__slots__, row, strict=False))
    values["status"] = Status(values["status"])
    values["phase"] = Phase(values["phase"])
    return Execution(**values)


def checkpoint(row: sa.Row[Any]) -> Checkpoint:
    """A checkpoint from a whole row of its table."""
    values = row._asdict()
    values["kind"] = CheckpointKind(values["kind"])
    return Checkpoint(**values)


def signal(row: sa.Row[Any]) -> SentSignal:
    """A signal from a row of `SIGNAL_COLUMNS`."""
    return SentSignal(**row._asdict())


def event(row: sa.Row[Any]) -> Event:
    """An event from a whole row of its table."""
    return Event(**row._asdict())


def new_execution(new: NewExecution) -> dict[str, Any]:
    """The values of an inserted execution, but for its `due_at`."""
    head = first_checkpoints(new)[-1]
    return {
        "execution_id": new.execution_id,
        "saga": new.saga,
        "version": new.version,
        "business_key": new.business_key,
        "input": new.input,
        "input_digest": new.input_digest,
        "lineage_id": new.lineage_id,
        "root_id": new.root_id,
        "parent_id": new.parent_id,
        "parent_step": new.parent_step,
        "parent_visit": new.parent_visit,
        "child_index": new.child_index,
        "status": new.status,
        "phase": new.phase,
        "epoch": 0,
        "head": head["checkpoint_id"],
        "head_seq": head["seq"],
        "recoveries": 0,
        "attempt": 0,
        "dispatches": 0,
        "queue": new.queue,
        "priority": new.priority,
        "deadline_seconds": None if new.deadline_in is None else new.deadline_in.total_seconds(),
        "deadline_moment": new.deadline_at,
        "forked_from": new.forked_from,
    }


def first_checkpoints(new: NewExecution) -> list[dict[str, Any]]:
    """The values of the root of a new execution's chain, and of what a fork inherits."""
    chain = [_start_checkpoint(new)]
    for seq, entry in enumerate(new.prefix, start=1):
        inherited = {
            "checkpoint_id": identity.inherited_checkpoint_id(new.execution_id, seq),
            "execution_id": new.execution_id,
            "seq": seq,
            "parent_checkpoint_id": chain[-1]["checkpoint_id"],
            "kind": entry.kind,
            "step": entry.step,
            "visit": entry.visit,
            "step_key": identity.step_key(new.execution_id, entry.step, entry.visit),
            "epoch": 0,
            "owner": "",
            "attempt": entry.attempt,
            "result": entry.result,
        }
        chain.append(inherited)
    return chain


def _start_checkpoint(new: NewExecution) -> dict[str, Any]:
    return {
        "checkpoint_id": identity.start_checkpoint_id(new.execution_id),
        "execution_id": new.execution_id,
        "seq": 0,
        "parent_checkpoint_id": None,
        "kind": CheckpointKind.START,
        "step": START_STEP,
        "visit": 1,
        "step_key": identity.step_key(new.execution_id, START_STEP, 1),
        "epoch": 0,
        "owner": "",
        "attempt": 0,
        "result": new.input,
    }


def committed(commit: Commit) -> dict[str, Any]:
    """The values of the checkpoint that a commit inserts."""
    return {
        "checkpoint_id": commit.checkpoint_id,
        "execution_id": commit.token.execution_id,
        "seq": commit.seq,
        "parent_checkpoint_id": commit.parent,
        "kind": commit.kind,
        "step": commit.step,
        "visit": commit.visit,
        "step_key": commit.token.step_key,
        "epoch": commit.token.epoch,
        "owner": commit.token.owner,
        "attempt": commit.attempt,
        "result": commit.result,
    }


def first_events(new: NewExecution) -> list[dict[str, Any]]:
    """The values of the audit events of a new execution."""
    made = [Event(execution_id=new.execution_id, name=EventName.STARTED, epoch=0)]
    if new.forked_from is not None:
        details = {"from": str(new.forked_from), "seq": len(new.prefix)}
        forked = Event(
            execution_id=new.execution_id, name=EventName.FORKED, epoch=0, details=details
        )
        made.append(forked)
    return [event_values(event) for event in made]


def event_values(recorded: Event) -> dict[str, Any]:
    """The values of an inserted event."""
    return {
        "execution_id": recorded.execution_id,
        "name": str(recorded.name),
        "epoch": recorded.epoch,
        "current_epoch": recorded.current_epoch,
        "owner": recorded.owner,
        "current_owner": recorded.current_owner,
        "step_key": recorded.step_key,
        "sink": recorded.sink,
        "payload_digest": recorded.payload_digest,
        "details": dict(recorded.details),
    }
