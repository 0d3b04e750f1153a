"""How many, how long, and by which names: fan-outs, time-outs, signals, limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from fencepost.findings import Finding, Severity, source_of
from fencepost.limits import Limit
from fencepost.saga.checks import rules
from fencepost.saga.checks.walk import Layout, Place
from fencepost.saga.definition import Saga
from fencepost.saga.joins import Quorum
from fencepost.saga.nodes import MapNode, StepNode, WaitKind, WaitNode
from fencepost.saga.steps import Step
from fencepost.serde import describe

MANY = 10_000
"""Children that are still inserted and joined within seconds."""


def check(layout: Layout) -> Iterator[Finding]:
    """All findings about a saga's figures."""
    for place in layout.places:
        if isinstance(place.node, MapNode):
            yield from _fan_out(place, place.node)
    yield from _times(layout)
    yield from _waits(layout)


def _fan_out(place: Place, node: MapNode) -> Iterator[Finding]:
    if node.max_items is None:
        said = "it takes any number of items"
        yield rules.UNBOUNDED.at(place.name, said, source=source_of(node.over))
        return
    if node.max_items > MANY:
        yield rules.LARGE.at(place.name, f"it takes up to {node.max_items:,} items")
    if isinstance(node.join, Quorum) and node.join.successes > node.max_items:
        said = f"{node.join.successes} are to succeed, of at most {node.max_items}"
        yield rules.QUORUM_TOO_LARGE.at(place.name, said)


def _times(layout: Layout) -> Iterator[Finding]:
    saga = layout.saga
    for step in saga.steps:
        if step.deadline is not None and step.timeout is not None and step.deadline < step.timeout:
            yield rules.DEADLINE_BELOW_TIMEOUT.at(
                f"{saga.name}/{step.name}",
                f"its deadline is {step.deadline}, and its timeout {step.timeout}",
                source=source_of(step.function),
            )
    if saga.deadline is not None:
        yield from _deadline(saga.deadline, layout)


def _deadline(deadline: timedelta, layout: Layout) -> Iterator[Finding]:
    # Past the pivot an execution isn't turned back any more.
    places = [place for place in layout.places if not place.inside and not place.past_pivot]
    asleep = timedelta(0)
    for place in places:
        node = place.node
        if isinstance(node, WaitNode) and isinstance(node.duration, timedelta):
            asleep += node.duration
            if asleep >= deadline:
                yield rules.SHORT_DEADLINE.at(
                    place.name,
                    f"sleeps up to here take {asleep}, and the saga's deadline is {deadline}",
                    severity=Severity.ERROR,
                )
                return
        timeout = node.step.timeout if isinstance(node, StepNode) else None
        if isinstance(node, WaitNode):
            timeout = node.timeout
        if timeout is not None and timeout > deadline:
            said = f"its timeout is {timeout}, and the saga's deadline {deadline}"
            yield rules.SHORT_DEADLINE.at(place.name, said)


def _waits(layout: Layout) -> Iterator[Finding]:
    payloads: dict[str, tuple[str, Any]] = {}
    for place in layout.places:
        node = place.node
        if not isinstance(node, WaitNode) or node.signal is None:
            continue
        if node.timeout is None and layout.saga.deadline is None:
            what = "an approval" if node.kind is WaitKind.APPROVAL else "a signal"
            yield rules.NO_TIMEOUT.at(place.name, f"it waits for {what} for ever")
        where, payload = payloads.setdefault(node.signal.name, (place.name, node.signal.payload))
        if payload != node.signal.payload:
            yield rules.TWO_TYPES.at(
                place.name,
                f"signal {node.signal.name!r} brings {describe(node.signal.payload)} here, and"
                f" {describe(payload)} at {where}",
            )


# -- across sagas --------------------------------------------------------------------------


def same_figures(one: Limit, other: Limit) -> bool:
    """Whether two limits of one name are the same limit."""
    return (one.concurrency, one.rate, one.per) == (other.concurrency, other.rate, other.per)


def names(sagas: Iterable[Saga[Any, Any]]) -> Iterator[Finding]:
    """Effects and limits of one name that aren't the same."""
    steps: dict[Step[Any, Any], str] = {}
    for saga in sagas:
        for step in saga.steps:
            steps.setdefault(step, f"{saga.name}/{step.name}")
    effects: dict[str, Any] = {}
    limits: dict[str, Limit] = {}
    for step, place in steps.items():
        source = source_of(step.function)
        for effect in step.effects:
            if effects.setdefault(effect.name, effect) is not effect:
                said = f"there is another effect named {effect.name!r}"
                yield rules.TWO_OF_A_NAME.at(place, said, source=source)
        limit = step.limit
        if limit is not None and not same_figures(limits.setdefault(limit.name, limit), limit):
            said = f"there is another limit named {limit.name!r} with other figures"
            yield rules.TWO_FIGURES.at(place, said, source=source)
