"""Invariant 8: each refused write is on record, and its payload is nowhere in the state.

A deterministic step gives a zombie and its successor the same payload, so that a digest alone
proves nothing: what the rightful owner committed may be there. What may not be there is a
checkpoint of the zombie's after its epoch had ended, or a payload that only the zombie had.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fencepost.verify.facts import CheckpointFact, EventFact, Facts
from fencepost.verify.invariant import Findings
from fencepost.verify.joined import values_of
from fencepost.verify.names import REFUSED, digest_of


def check(facts: Facts, found: Findings) -> None:
    """Every refusal in the audit trail, against the execution's chain and all that follows."""
    for execution_id in facts.executions:
        for event in facts.events.get(execution_id, ()):
            if event.name in REFUSED:
                found.examined("refused writes")
                _record(facts, event, found)
                _landed(facts, event, found)
                _elsewhere(facts, event, found)


def _record(facts: Facts, event: EventFact, found: Findings) -> None:
    # Nobody need own the execution by now, and a body that failed had nothing to write: the
    # current owner and the digest may be missing.
    wanted = ("epoch", "current_epoch", "owner", "step_key", "sink")
    missing = [name for name in wanted if not getattr(event, name)]
    if missing:
        found.violated(
            "refusal.incomplete",
            event.execution_id,
            f"the record of a refused write lacks {', '.join(missing)}",
            event_id=event.event_id,
            missing=missing,
        )
        return
    if not facts.timelines[event.execution_id].owned(event.epoch, event.owner):
        found.violated(
            "refusal.stranger",
            event.execution_id,
            f"a write was refused to one who never held epoch {event.epoch}",
            event_id=event.event_id,
            owner=event.owner,
        )
    if (event.epoch, event.owner) == (event.current_epoch, event.current_owner):
        found.violated(
            "refusal.of-owner",
            event.execution_id,
            f"a write was refused to the owner of epoch {event.epoch}",
            event_id=event.event_id,
            owner=event.owner,
        )


def _landed(facts: Facts, event: EventFact, found: Findings) -> None:
    for checkpoint in _stale(facts, event):
        same = checkpoint.step_key == event.step_key
        if same or digest_of(checkpoint.result) == event.payload_digest:
            found.violated(
                "refusal.landed",
                event.execution_id,
                f"a write that was refused to epoch {event.epoch} is checkpoint {checkpoint.seq}",
                event_id=event.event_id,
                seq=checkpoint.seq,
                step_key=checkpoint.step_key,
                payload_digest=event.payload_digest,
            )


def _stale(facts: Facts, event: EventFact) -> Iterator[CheckpointFact]:
    timeline = facts.timelines[event.execution_id]
    for checkpoint in facts.chains.get(event.execution_id, ()):
        by_zombie = (checkpoint.epoch, checkpoint.owner) == (event.epoch, event.owner)
        if by_zombie and timeline.successor_before(checkpoint) is not None:
            yield checkpoint


def _elsewhere(facts: Facts, event: EventFact, found: Findings) -> None:
    """Where a result goes from the chain: the row, the continuation, the parent's join."""
    if event.payload_digest is None:
        return
    stale = {checkpoint.checkpoint_id for checkpoint in _stale(facts, event)}
    rightful = {
        digest_of(checkpoint.result)
        for checkpoint in facts.chains.get(event.execution_id, ())
        if checkpoint.checkpoint_id not in stale
    }
    if event.payload_digest in rightful:
        return
    for place, value in _places(facts, event):
        if value is not None and digest_of(value) == event.payload_digest:
            found.violated(
                "refusal.spread",
                event.execution_id,
                f"a payload that was refused to epoch {event.epoch} is {place}",
                event_id=event.event_id,
                step_key=event.step_key,
                payload_digest=event.payload_digest,
            )


def _places(facts: Facts, event: EventFact) -> Iterator[tuple[str, Any]]:
    execution = facts.executions[event.execution_id]
    yield "the execution's result", execution.result
    if execution.status == "continued":
        for other in facts.lines[execution.lineage_id]:
            if str(other.execution_id) == execution.continued_as:
                yield "the input of the next execution of its line", other.input
        # Its parent joined what came of the line's last execution.
        return
    if execution.parent_id is None or execution.child_index is None:
        return
    chain = facts.chains.get(execution.parent_id, ())
    mine = {
        checkpoint.kind: checkpoint
        for checkpoint in chain
        if checkpoint.of == (execution.parent_step, execution.parent_visit)
    }
    if "join" in mine and "fan-out" in mine:
        for value in values_of(facts, mine["fan-out"], mine["join"], execution.child_index):
            yield "in the parent's join", value
