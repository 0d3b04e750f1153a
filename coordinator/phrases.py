"""Facts in words: one line for what was committed, for the narration and for `status`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from coordinator.watch import Fact
from fencepost.records import Checkpoint, CheckpointKind, Event, EventName, Execution

PARENT_FAILED = "saga.parent-failed"
FROM_OUTSIDE = ("execution.cancelled", "execution.deadline-passed")


class Tone(StrEnum):
    """How a line is meant."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    UNDO = "undo"
    ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class Line:
    """What happened, to whom, and who did it.

    Attributes:
        who: The release or the module.
        worker: The worker's short name; empty where nobody did it.
        text: In words.
        epoch: The writer's.
    """

    at: datetime
    who: str
    worker: str
    text: str
    tone: Tone
    epoch: int


def who(execution: Execution) -> str:
    """A module's name, or `release`."""
    if execution.parent_id is None:
        return execution.saga
    name: str = execution.input["module"]["name"]
    return name


def worker_of(owner: str | None) -> str:
    """The short name of a worker: what comes before the `@` of its node name."""
    return (owner or "").partition("@")[0]


def lines(facts: Sequence[Fact]) -> Iterator[Line]:
    """Facts in words; steps that one owner did one after the other share a line."""
    waiting: Fact | None = None
    steps: list[str] = []
    for fact in facts:
        entry = fact.entry
        if waiting is not None and not _continues(waiting.entry, entry):
            yield _steps_line(waiting, steps)
            waiting, steps = None, []
        if isinstance(entry, Checkpoint) and entry.kind in _GROUPED:
            waiting, steps = fact, [*steps, entry.step]
            continue
        line = _line(fact)
        if line is not None:
            yield line
    if waiting is not None:
        yield _steps_line(waiting, steps)


_GROUPED = (CheckpointKind.STEP, CheckpointKind.UNDO)


def _continues(before: Checkpoint | Event, entry: Checkpoint | Event) -> bool:
    if not isinstance(before, Checkpoint) or not isinstance(entry, Checkpoint):
        return False
    return (before.execution_id, before.kind, before.owner) == (
        entry.execution_id,
        entry.kind,
        entry.owner,
    )


def _steps_line(last: Fact, steps: Sequence[str]) -> Line:
    entry = last.entry
    assert isinstance(entry, Checkpoint)
    if entry.kind is CheckpointKind.UNDO:
        return _made(last, f"undone: {', '.join(steps)}", Tone.UNDO)
    done = ", ".join(f"{step} ✓" for step in steps)
    return _made(last, done, Tone.GOOD)


def _made(fact: Fact, text: str, tone: Tone) -> Line:
    entry = fact.entry
    return Line(fact.at, who(fact.execution), worker_of(entry.owner), text, tone, epoch=entry.epoch)


def _line(fact: Fact) -> Line | None:
    entry = fact.entry
    words = _event_words(entry) if isinstance(entry, Event) else _checkpoint_words(entry)
    return None if words is None else _made(fact, *words)


def _checkpoint_words(entry: Checkpoint) -> tuple[str, Tone] | None:
    words: tuple[str, Tone] | None = None
    match entry.kind:
        case CheckpointKind.START | CheckpointKind.STEP | CheckpointKind.UNDO:
            pass
        case CheckpointKind.FAN_OUT:
            words = f"fans out: {entry.result['children']} modules", Tone.PLAIN
        case CheckpointKind.JOIN:
            words = f"all {len(entry.result)} modules are staged", Tone.GOOD
        case CheckpointKind.COMPENSATING:
            failure: dict[str, Any] = entry.result["failure"]
            # A module that its release tells to undo its work did nothing wrong itself.
            if failure["code"] in FROM_OUTSIDE:
                words = f"turns back: {failure['message']}", Tone.BAD
            elif failure["code"] != PARENT_FAILED:
                words = f"{failure['step']} ✗  {failure['message']}", Tone.BAD
        case CheckpointKind.UNDO_FAN_OUT:
            words = "the modules undo their work", Tone.UNDO
        case CheckpointKind.REOPENED:
            words = f"{entry.result['by']} has it go on: {entry.result['why']}", Tone.PLAIN
        case CheckpointKind.BRANCH_FAILED:
            words = f"{entry.step} ✗  {entry.result['message']}", Tone.BAD
        case _:
            # Other sagas than the factory's have other kinds.
            words = f"{entry.kind}: {entry.step}", Tone.PLAIN
    return words


def _event_words(event: Event) -> tuple[str, Tone] | None:
    details = event.details
    match event.name:
        case EventName.RECOVERED:
            old = details["from_epoch"]
            text = (
                f"takes over from {worker_of(details['from_owner'])}: epoch {old} → {event.epoch},"
                f" after checkpoint {details['head_seq']}"
            )
            return text, Tone.ALARM
        case EventName.ZOMBIE_WRITE_REJECTED | EventName.LEASE_LOST:
            text = (
                f"REFUSED by the {event.sink}: {event.name}, epoch {event.epoch} wrote and"
                f" {event.current_epoch} is current"
            )
            return text, Tone.ALARM
        case EventName.ATTEMPT_FAILED:
            error = details.get("error") or {}
            text = f"a try failed, the next in {details['retry_in']:g} s: {error.get('message')}"
            return text, Tone.BAD
        case EventName.PARKED:
            return f"PARKED: {details['reason']}", Tone.BAD
        case EventName.LEASE_RELEASED:
            return "hands on what it had in hand", Tone.PLAIN
        case _:
            return _outside_words(event)


def _outside_words(event: Event) -> tuple[str, Tone] | None:
    """What happened to an execution without its owner's doing."""
    details = event.details
    match event.name:
        case EventName.CANCELLED:
            return f"CANCELLED by {details['by']}: {details['why']}", Tone.ALARM
        case EventName.DEADLINE_PASSED:
            return "its deadline has passed: it is turned back, and fenced at once", Tone.ALARM
        case EventName.PAUSED | EventName.RESUMED:
            what = "paused" if event.name == EventName.PAUSED else "resumed"
            return f"{what} by {details['by']}: {details['why']}", Tone.PLAIN
        case _:
            return None
