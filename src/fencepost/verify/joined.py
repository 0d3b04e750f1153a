"""What the children of a fan-out had come to when their parent joined them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.verify.facts import CheckpointFact, ExecutionFact, Facts
from fencepost.verify.names import PARENT_FAILED
from fencepost.verify.turns import turns_of


class _Unknown:
    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Any = _Unknown()
"""A result that isn't stored any more: it was overwritten when the child undid its work."""

COLLECTED = {"succeeded", "value", "error"}
"""What a join that collects tells of each child."""


@dataclass(frozen=True)
class Outcome:
    """How a child had ended.

    Attributes:
        child: The last of its line.
        succeeded: None where the facts don't tell.
        value: Its result, or `UNKNOWN`.
        error: What it failed with, or `UNKNOWN`.
        last_at: When it was written for the last time before its parent turned back.
    """

    child: ExecutionFact
    succeeded: bool | None
    value: Any
    error: Any
    last_at: datetime | None


def outcomes(facts: Facts, fan_out: CheckpointFact) -> list[Outcome]:
    """The outcomes of a fan-out's children, by index."""
    children = facts.fanned_out(fan_out.execution_id, *fan_out.of)
    return [_outcome(facts, child) for child in children if child.status != "continued"]


def _outcome(facts: Facts, child: ExecutionFact) -> Outcome:
    chain = facts.chains.get(child.execution_id, ())
    told = next((t for t in turns_of(child, chain) if t.code == PARENT_FAILED), None)
    until = chain if told is None else told.before
    last_at = max((entry.created_at for entry in until), default=None)
    if told is not None or not child.ended:
        # It is undone by now, or is being undone: only one that had succeeded is.
        undone = told is not None or child.phase == "compensating"
        return Outcome(child, True if undone else None, UNKNOWN, None, last_at)
    if child.status == "succeeded":
        return Outcome(child, True, child.result, None, last_at)
    return Outcome(child, False, None, child.error, last_at)


def fits(result: Any, ended: Sequence[Outcome]) -> bool:
    """Whether a join's result can have come of these children, by any of the ways to join."""
    if len(ended) == 1 and ended[0].succeeded and _same(result, ended[0].value):
        return True
    if not isinstance(result, list):
        return False
    return _collected(result, ended) or _gathered(result, ended)


def _gathered(result: list[Any], ended: Sequence[Outcome]) -> bool:
    """The results of those that succeeded, by index."""
    values = [outcome.value for outcome in ended if outcome.succeeded]
    return len(values) == len(result) and all(map(_same, result, values))


def _collected(result: list[Any], ended: Sequence[Outcome]) -> bool:
    """Of every child, what came of it."""
    return len(result) == len(ended) and all(map(_tells, result, ended))


def _tells(item: Any, outcome: Outcome) -> bool:
    if not collected(item):
        return False
    if item["succeeded"] is not outcome.succeeded:
        return False
    if outcome.succeeded:
        return item["error"] is None and _same(item["value"], outcome.value)
    known = outcome.error.get("code") if isinstance(outcome.error, dict) else None
    told = item["error"] if isinstance(item["error"], dict) else {}
    return item["value"] is None and (known is None or told.get("code") == known)


def collected(item: Any) -> bool:
    """Whether this is what a collecting join tells of a child."""
    return isinstance(item, dict) and item.keys() == COLLECTED


def _same(value: Any, known: Any) -> bool:
    return known is UNKNOWN or bool(value == known)


def values_of(facts: Facts, fan_out: CheckpointFact, join: CheckpointFact, index: int) -> list[Any]:
    """Where in a join's result that child's own may be."""
    ended, result = outcomes(facts, fan_out), join.result
    found = [result] if len(ended) == 1 else []
    if isinstance(result, list):
        successes = [o.child.child_index for o in ended if o.succeeded]
        places = [index] if len(result) == len(ended) else []
        if len(result) == len(successes) != len(ended) and index in successes:
            places = [successes.index(index)]
        found += [result[place] for place in places if place < len(result)]
    return found + [item["value"] for item in found if collected(item)]
