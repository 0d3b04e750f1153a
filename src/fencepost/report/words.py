"""Checkpoints and events in a few words, for people who were not there."""

from __future__ import annotations

from typing import Any

from fencepost.effects.model import UNKNOWN_OUTCOME, EffectRecord
from fencepost.records import Checkpoint, CheckpointKind, Event, EventName
from fencepost.report.model import Kind

_QUIET = frozenset(
    {
        EventName.STARTED,
        EventName.LEASE_ACQUIRED,
        EventName.LEASE_RELEASED,
        EventName.EPOCH_RAISED,
        EventName.COMPENSATING,
    }
)
"""What the picture shows by its segments, or a checkpoint tells."""

_PEOPLE = frozenset(
    {
        EventName.CANCELLED,
        EventName.PAUSED,
        EventName.RESUMED,
        EventName.UNPARKED,
        EventName.REOPENED,
        EventName.FORKED,
        EventName.REPINNED,
        EventName.SIGNAL_SENT,
        EventName.SIGNAL_REJECTED,
        EventName.EFFECT_RESOLVED,
    }
)


def of_checkpoint(entry: Checkpoint) -> tuple[Kind, str] | None:
    """What a checkpoint is marked with; None for the root."""
    if entry.kind is CheckpointKind.START:
        return None
    result: Any = entry.result
    visit = "" if entry.visit == 1 else f", visit {entry.visit}"
    kind, text = Kind.STEP, f"{entry.step}: {entry.kind}{visit}"
    match entry.kind:
        case CheckpointKind.STEP:
            text = f"{entry.step} is done{visit}"
        case CheckpointKind.FAN_OUT:
            text = f"{entry.step}: {result['children']} children are started{visit}"
        case CheckpointKind.JOIN:
            text = f"{entry.step}: the children are joined{visit}"
        case CheckpointKind.UNDO:
            kind, text = Kind.UNDO, f"{entry.step} is undone{visit}"
        case CheckpointKind.COMPENSATING:
            failure = result["failure"]
            kind, text = Kind.TURNED, f"turns back at {failure['step']}: {failure['message']}"
        case _:
            pass
    return kind, text


def of_event(event: Event) -> tuple[Kind, str] | None:
    """What an event is marked with; None for what the picture shows anyway."""
    if event.name in _QUIET:
        return None
    details = event.details
    said = ", ".join(f"{key} {details[key]}" for key in ("by", "why") if details.get(key))
    kind = Kind.PERSON if event.name in _PEOPLE else Kind.STEP
    text = f"{event.name}{': ' if said else ''}{said}"
    match event.name:
        case EventName.RECOVERED:
            gone = str(details["from_owner"]).partition("@")[0]
            kind, text = Kind.TAKEOVER, f"takes over from {gone}: epoch {event.epoch}"
        case EventName.ZOMBIE_WRITE_REJECTED | EventName.LEASE_LOST:
            kind = Kind.REFUSED
            text = (
                f"{event.name}: a write of epoch {event.epoch} is refused by {event.sink};"
                f" {event.current_epoch} is current"
            )
        case EventName.ATTEMPT_FAILED:
            error = details.get("error") or {}
            kind, text = Kind.PARKED, f"a try failed: {error.get('message')}"
        case EventName.PARKED:
            kind, text = Kind.PARKED, f"parked: {details['reason']}"
        case EventName.EFFECT_IN_DOUBT:
            kind, text = Kind.DOUBT, f"an effect is in doubt: {event.step_key}"
        case EventName.DEADLINE_PASSED:
            kind, text = Kind.TURNED, "its deadline has passed"
        case _:
            pass
    return kind, text


def of_effect(record: EffectRecord) -> tuple[Kind, str]:
    """What an effect is marked with."""
    kind = Kind.DOUBT if record.status in UNKNOWN_OUTCOME else Kind.EFFECT
    return kind, f"effect {record.effect} at {record.sink}: {record.status}, key {record.key}"
