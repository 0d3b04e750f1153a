"""From stored facts to lanes: who owned what, when, and what happened meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from fencepost.effects.model import EffectRecord
from fencepost.ports import EffectStore, ExecutionStore
from fencepost.records import Checkpoint, CheckpointKind, Event, EventName, Execution
from fencepost.report.model import Ended, Kind, Lane, Mark, Segment, Span, Timeline
from fencepost.report.words import of_checkpoint, of_effect, of_event

GIVEN_UP = frozenset({EventName.LEASE_RELEASED, EventName.PARKED, EventName.ATTEMPT_FAILED})
WAITS_AFTER = frozenset(
    {
        CheckpointKind.FAN_OUT,
        CheckpointKind.STOP,
        CheckpointKind.UNDO_FAN_OUT,
        CheckpointKind.WAIT,
    }
)


@dataclass(frozen=True)
class Outside:
    """Something that was done to a worker, which no stored fact tells.

    Attributes:
        worker: Its node name, or what comes before the `@`.
        until: None where it lasts.
    """

    worker: str
    since: datetime
    until: datetime | None
    text: str


def lane_of(owner: str | None) -> str:
    """The worker of an owner's name: what comes before the `@`, or before the first colon."""
    return (owner or "").partition(":")[0].partition("@")[0]


def read(
    executions: ExecutionStore,
    effects: EffectStore,
    run: UUID,
    outside: Sequence[Outside] = (),
) -> Timeline:
    """Read a run, and lay it out.

    Args:
        executions: The truth.
        effects: What is known of effects.
        run: Any execution of it.
        outside: What was done to workers meanwhile.
    """
    line = executions.lineage(run)
    return _Reading(executions, effects, line, outside).timeline()


class _Reading:
    def __init__(
        self,
        executions: ExecutionStore,
        effects: EffectStore,
        line: Sequence[Execution],
        outside: Sequence[Outside],
    ) -> None:
        self._line = line
        self._outside = outside
        self._chains = {e.execution_id: executions.chain(e.execution_id) for e in line}
        self._events: dict[UUID, list[Event]] = defaultdict(list)
        for event in executions.events([e.execution_id for e in line]):
            self._events[event.execution_id].append(event)
        self._effects = [r for e in line for r in effects.of_execution(e.execution_id)]
        self._began = min(execution.created_at for execution in line)
        self._names = {e.execution_id: _name(e, number) for number, e in enumerate(line)}
        self._colours = {e.execution_id: number for number, e in enumerate(line)}

    def timeline(self) -> Timeline:
        marks = sorted(self._marks(), key=lambda mark: mark.at)
        spans = [self._span(one) for one in self._outside]
        ends = [0.0, *(m.at for m in marks), *(s.end or s.begin for s in spans)]
        last = max(ends)
        segments = [s for e in self._line for s in self._segments(e, last)]
        names = {s.owner for s in segments} | {span.lane for span in spans}
        names |= {mark.lane for mark in marks if mark.lane}
        lanes = [_lane(name, [s for s in segments if s.owner == name]) for name in sorted(names)]
        return Timeline(
            began=self._began,
            length=max([last, *(s.end for s in segments)]),
            lanes=tuple(lanes),
            marks=tuple(marks),
            spans=tuple(spans),
            executions=tuple(
                (
                    self._names[e.execution_id],
                    str(e.execution_id),
                    str(e.status),
                    self._colours[e.execution_id],
                )
                for e in self._line
            ),
        )

    def _seconds(self, at: datetime | None) -> float:
        assert at is not None  # it was stored
        return (at - self._began).total_seconds()

    def _span(self, one: Outside) -> Span:
        end = None if one.until is None else self._seconds(one.until)
        return Span(lane_of(one.worker), self._seconds(one.since), end, one.text)

    def _segments(self, execution: Execution, last: float) -> Iterator[Segment]:
        for taken in self._events[execution.execution_id]:
            if taken.name != EventName.LEASE_ACQUIRED:
                continue
            begin = self._seconds(taken.at)
            endings = [(at, how) for at, how in self._endings(execution, taken) if at >= begin]
            end, ended = min(endings, default=self._otherwise(execution, taken, last))
            yield Segment(
                execution_id=str(execution.execution_id),
                name=self._names[execution.execution_id],
                owner=lane_of(taken.owner),
                epoch=taken.epoch,
                begin=begin,
                end=end,
                ended=ended,
                colour=self._colours[execution.execution_id],
            )

    def _otherwise(self, execution: Execution, taken: Event, last: float) -> tuple[float, Ended]:
        """Nothing says when an ownership ended: it lasts, or it did with its last checkpoint."""
        if execution.owner == taken.owner:
            return last, Ended.OPEN
        chain = self._chains[execution.execution_id]
        own = [entry.created_at for entry in chain if entry.owner == taken.owner]
        return self._seconds(own[-1] if own else taken.at), Ended.DONE

    def _endings(self, execution: Execution, taken: Event) -> Iterator[tuple[float, Ended]]:
        """All that may have ended an ownership; the first of them did."""
        chain = self._chains[execution.execution_id]
        for entry in chain:
            over = entry.kind in WAITS_AFTER or (execution.status.ended and entry is chain[-1])
            if over and entry.owner == taken.owner:
                yield self._seconds(entry.created_at), Ended.DONE
        for event in self._events[execution.execution_id]:
            if event.name in GIVEN_UP and event.owner == taken.owner:
                yield self._seconds(event.at), Ended.DONE
            elif event.details.get("from_owner") == taken.owner:
                yield self._seconds(event.at), Ended.LOST

    def _marks(self) -> Iterator[Mark]:
        for execution in self._line:
            for entry in self._chains[execution.execution_id]:
                yield from self._mark(entry, entry.created_at, of_checkpoint(entry))
            for event in self._events[execution.execution_id]:
                yield from self._mark(event, event.at, of_event(event))
        for record in self._effects:
            at = record.confirmed_at or record.created_at
            yield from self._mark(record, at, of_effect(record))

    def _mark(
        self,
        fact: Checkpoint | Event | EffectRecord,
        at: datetime | None,
        told: tuple[Kind, str] | None,
    ) -> Iterator[Mark]:
        if told is None:
            return
        kind, text = told
        yield Mark(
            self._seconds(at),
            lane_of(fact.owner),
            kind,
            text,
            about=self._names[fact.execution_id],
            execution_id=str(fact.execution_id),
            epoch=fact.epoch,
        )


def _name(execution: Execution, number: int) -> str:
    index = "" if execution.child_index is None else f"[{execution.child_index}]"
    again = f" #{number + 1}" if execution.parent_id is None and number else ""
    return f"{execution.saga}{index}{again}"


def _lane(name: str, segments: Iterable[Segment]) -> Lane:
    """Put segments that overlap into rows above each other."""
    free: list[float] = []
    placed = []
    for segment in sorted(segments, key=lambda s: (s.begin, s.end)):
        row = next((r for r, until in enumerate(free) if until <= segment.begin), len(free))
        if row == len(free):
            free.append(segment.end)
        free[row] = max(segment.end, segment.begin)
        placed.append(replace(segment, row=row))
    return Lane(name, tuple(placed), max(1, len(free)))
