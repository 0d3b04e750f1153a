"""The facts of a world in memory, as the verifier reads them from SQL and Redis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar
from uuid import UUID

from fencepost.testing.explore.world import World
from fencepost.verify.facts import (
    CheckpointFact,
    EffectFact,
    EventFact,
    ExecutionFact,
    Facts,
    LeaseFact,
    MessageFact,
    SignalFact,
)
from fencepost.verify.names import RUN_TASK

T = TypeVar("T")
_FIELDS: dict[type[Any], tuple[str, ...]] = {}


def facts_of(world: World) -> Facts:
    """All that is stored in a world."""
    with world.executions.locked() as (tables, _, _):
        executions = {
            row.execution.execution_id: _as(
                ExecutionFact, row.execution, scheduled=row.due_at is not None
            )
            for row in tables.rows.values()
        }
        chains = {i: tuple(_as(CheckpointFact, c) for c in c_) for i, c_ in tables.chains.items()}
        events = [_as(EventFact, event) for event in tables.events]
        effects = [
            _as(EffectFact, row.effect, resolved=row.effect.resolution is not None)
            for row in tables.effects.values()
        ]
        signals = [_as(SignalFact, signal) for signal in tables.signals.values()]
    leases = {
        execution_id: LeaseFact(
            execution_id, owner, epoch or None, owner is not None, executions[execution_id].epoch
        )
        for execution_id, owner, epoch, _ in world.leases.entries()
        if execution_id in executions
    }
    messages = [MessageFact(m.execution_id, RUN_TASK, "messages") for m in world.messages]
    return Facts(
        executions=executions,
        chains=chains,
        events=_by_execution(events),
        effects=_by_execution(effects),
        leases=leases,
        messages=_by_execution(messages),
        signals=_by_execution(signals),
    )


def _as(kind: type[T], record: Any, **more: Any) -> T:
    """A fact with the fields of a record; enumerations as the text that SQL has."""
    values = {name: _plain(getattr(record, name)) for name in _names(kind) if name not in more}
    return kind(**values, **more)


def _names(kind: type[Any]) -> tuple[str, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(f.name for f in fields(kind))
    return _FIELDS[kind]


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value


def _by_execution(facts: Iterable[Any]) -> dict[UUID, tuple[Any, ...]]:
    found: dict[UUID, list[Any]] = defaultdict(list)
    for fact in facts:
        found[fact.execution_id].append(fact)
    return {execution_id: tuple(its) for execution_id, its in found.items()}
