"""What a scenario must have led to, checked against stored facts when it is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.ledger_facts import (
    COMPENSATED,
    ArtifactRow,
    AttemptRow,
    Line,
    StatementRow,
    files_below,
    read_line,
)
from coordinator.phrases import worker_of
from coordinator.play import Play
from coordinator.scenarios import Course
from fencepost.records import Checkpoint, CheckpointKind, Event, EventName, Status
from ledger.database import engine_for

ENOUGH_CHECKPOINTS = 6
GRACE = 1.0
"""Seconds beyond the lease time within which a takeover must have happened."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that must be so.

    Attributes:
        shown: What was found, for people.
        found: The same as read, where that is more; JSON-compatible.
    """

    what: str
    held: bool
    shown: str
    found: Any = None


def claims_of(play: Play, course: Course) -> list[Claim]:
    """Everything that the issue of a scenario is about, whether it held or not."""
    line = read_line(engine_for(play.site.settings.database), play.root_id)
    found = _Found(play, course, line)
    return [
        *_identity(found),
        *_succession(found),
        *_steps(found),
        *_refusals(found),
        *_outcome(found),
    ]


class _Found:
    """The stored facts, read anew."""

    def __init__(self, play: Play, course: Course, line: Line) -> None:
        store = play.factory.fp.engine.executions
        self.play = play
        self.course = course
        self.struck = course.struck
        self.line = line
        self.chain = store.chain(self.struck.execution_id)
        self.events = store.events([self.struck.execution_id])
        self.last = play.read(course.last.execution_id)
        self.artifact = next((a for a in line.artifacts if a.step_key == self.step_key), None)

    @property
    def step_key(self) -> str:
        """Of the step that the worker was hit in."""
        return f"{self.struck.execution_id}:stage:1"

    def named(self, name: EventName) -> list[Event]:
        """The audit events of that name."""
        return [event for event in self.events if event.name == name]

    def steps(self, chain: Sequence[Checkpoint], step: str) -> list[dict[str, Any]]:
        """Completed runs of a step."""
        return [
            {"visit": c.visit, "attempt": c.attempt, "epoch": c.epoch, "owner": c.owner}
            for c in chain
            if c.step == step and c.kind is CheckpointKind.STEP
        ]


def _identity(found: _Found) -> Iterator[Claim]:
    before = str(found.struck.execution_id)
    after = str(found.artifact and found.artifact.step_key.partition(":")[0])
    yield Claim("the same execution before and after", before == after, after)
    keys = {found.artifact.step_key if found.artifact else None}
    keys |= {c.step_key for c in found.chain if c.step == "stage"}
    keys |= {event.step_key for event in found.named(EventName.ZOMBIE_WRITE_REJECTED)}
    yield Claim("the step key is unchanged", keys == {found.step_key}, joined(keys))


def _succession(found: _Found) -> Iterator[Claim]:
    course, ttl = found.course, found.play.ttl
    epochs = [event.epoch for event in found.named(EventName.LEASE_ACQUIRED)]
    shown = " → ".join(str(epoch) for epoch in epochs)
    yield Claim("epoch 1, then 2, and no other", epochs == [1, 2], shown)
    assert course.acquired is not None  # somebody went on
    owners = {found.struck.execution.owner, course.acquired.owner}
    yield Claim("another worker went on", len(owners) == 2, joined(owners))
    took = f"{course.latency:.3f} s"
    if course.recovered is not None:
        within = f"taken over within the lease time + {GRACE:g} s ({ttl:g} + {GRACE:g})"
        yield Claim(within, course.latency <= ttl + GRACE, took)
        return
    handed = [event.owner for event in found.named(EventName.LEASE_RELEASED)]
    own = handed == [found.struck.execution.owner]
    yield Claim("handed on by its owner", own, joined(handed))
    yield Claim("without waiting for the lease to run out", course.latency < ttl, took)


def _steps(found: _Found) -> Iterator[Claim]:
    before = found.struck.chain
    first = before[1].step if len(before) > 1 else ""
    runs = found.steps(found.chain, first)
    once = [(run["visit"], run["attempt"], run["epoch"]) for run in runs] == [(1, 1, 1)]
    retried = [e.step_key for e in found.named(EventName.ATTEMPT_FAILED)]
    shown = ", ".join(f"epoch {r['epoch']}, {worker_of(r['owner'])}" for r in runs)
    yield Claim(f"step 1 ({first}) ran once", once and not retried, shown, runs)
    kept = found.chain[: len(before)] == before
    yield Claim("what was done before is kept", kept, joined(c.step for c in before[1:]))
    links = [c.parent_checkpoint_id for c in found.chain[1:]]
    in_line = links == [c.checkpoint_id for c in found.chain[:-1]]
    enough = len(found.chain) >= ENOUGH_CHECKPOINTS
    what = f"{ENOUGH_CHECKPOINTS} or more checkpoints in one line"
    yield Claim(what, in_line and enough, " → ".join(f"{c.seq} {c.step}" for c in found.chain))


def _refusals(found: _Found) -> Iterator[Claim]:
    if not found.course.refusals:
        return
    for name, sink in (
        (EventName.ZOMBIE_WRITE_REJECTED, "ledger"),
        (EventName.LEASE_LOST, "checkpoint-store"),
    ):
        shown: list[dict[str, Any]] = [
            {"epoch": e.epoch, "current": e.current_epoch, "owner": e.owner, "sink": e.sink}
            | {"digest": e.payload_digest}
            for e in found.named(name)
        ]
        told = [(s["epoch"], s["current"], s["owner"], s["sink"]) for s in shown]
        held = told == [(1, 2, found.struck.execution.owner, sink)]
        held = held and all(s["digest"] for s in shown)
        told_in_short = "; ".join(
            f"epoch {s['epoch']} of {worker_of(s['owner'])}, current is {s['current']}"
            for s in shown
        )
        yield Claim(f"{name} by the {sink}", held, told_in_short, shown)


def _outcome(found: _Found) -> Iterator[Claim]:
    wanted = sorted(module["name"] for module in found.last.input["modules"])
    out = sorted(p.module for p in found.line.promotions if p.attempt_id == found.last.execution_id)
    promoted = found.last.status is Status.SUCCEEDED and out == wanted
    yield Claim(f"{len(wanted)} modules promoted, each once", promoted, joined(out))
    for attempt in found.line.attempts:
        if attempt.execution_id != found.last.execution_id:
            left = list(left_of(found.play, found.line, attempt))
            shown = joined(left) or "no row, no file"
            yield Claim(f"nothing active of attempt {attempt.attempt}", not left, shown)


def joined(values: Iterable[object]) -> str:
    """Values as a list in words; those of a set in order."""
    ordered = sorted(values, key=str) if isinstance(values, set) else values
    return ", ".join(str(value) for value in ordered)


def left_of(play: Play, line: Line, attempt: AttemptRow) -> Iterator[str]:
    """What is still there of an attempt: files, and rows that are not compensated."""
    yield from files_below(play.site.staging.root, f"{line.lineage_id}/{attempt.attempt}")
    rows: list[ArtifactRow | StatementRow] = [*line.artifacts, *line.statements]
    for row in rows:
        if row.attempt_id == attempt.execution_id and row.status != COMPENSATED:
            yield f"{row.module} is {row.status}"
    for promotion in line.promotions:
        if promotion.attempt_id == attempt.execution_id:
            yield f"{promotion.module} is promoted"
