"""Invariant 1: ids survive every takeover, and derived ids are the derived ones."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from fencepost.verify.facts import CheckpointFact, ExecutionFact, Facts
from fencepost.verify.invariant import Findings
from fencepost.verify.names import derived_child, derived_continuation, derived_keyed


def check(facts: Facts, found: Findings) -> None:
    """Ids of executions, of their families, and the keys of their steps."""
    found.examined("executions", len(facts.executions))
    for execution in facts.executions.values():
        _own_id(facts, execution, found)
        _family(facts, execution, found)
        _successor(facts, execution, found)
        chain = facts.chains.get(execution.execution_id, ())
        for checkpoint in chain:
            found.examined("checkpoints")
            _step_key(checkpoint, chain, found)
            # The children of a fan-out that a fork has inherited are the original's.
            if checkpoint.kind == "fan-out" and not checkpoint.inherited:
                _fanned_out(facts, checkpoint, found)
    for stray in facts.strays:
        found.violated(
            "identity.no-execution",
            stray,
            "checkpoints, events, effects or signals name an execution without a row",
        )


def _own_id(facts: Facts, execution: ExecutionFact, found: Findings) -> None:
    actual = execution.execution_id
    if execution.lineage_id != actual:
        candidates = {
            derived_continuation(other.execution_id) for other in facts.lines[execution.lineage_id]
        }
        if actual not in candidates:
            found.violated(
                "identity.continuation",
                actual,
                "its id is not derived from any earlier execution of its line",
                lineage_id=execution.lineage_id,
            )
        return
    derived = _first_id(execution)
    if derived is not None and derived != actual:
        found.violated(
            "identity.derived",
            actual,
            "its id is not the one that its origin derives",
            derived=derived,
            parent_id=execution.parent_id,
            business_key=execution.business_key,
        )


def _first_id(execution: ExecutionFact) -> UUID | None:
    if execution.parent_id is not None:
        return derived_child(
            execution.parent_id,
            str(execution.parent_step),
            int(execution.parent_visit or 0),
            -1 if execution.child_index is None else execution.child_index,
        )
    if execution.business_key is not None:
        return derived_keyed(execution.saga, execution.business_key)
    return None


def _family(facts: Facts, execution: ExecutionFact, found: Findings) -> None:
    _related(facts, execution, "lineage", execution.lineage_id, found)
    if execution.parent_id is not None:
        _related(facts, execution, "parent", execution.parent_id, found)
    elif execution.root_id != execution.lineage_id:
        found.violated(
            "identity.root",
            execution.execution_id,
            "it has no parent, and its root is not the first of its line",
            root_id=execution.root_id,
            lineage_id=execution.lineage_id,
        )


def _related(
    facts: Facts, execution: ExecutionFact, relation: str, other_id: UUID, found: Findings
) -> None:
    other = facts.executions.get(other_id)
    if other is None:
        found.violated(
            f"identity.{relation}-missing",
            execution.execution_id,
            f"its run has no execution with the id of its {relation}",
            missing=other_id,
        )
    elif other.root_id != execution.root_id:
        found.violated(
            "identity.root",
            execution.execution_id,
            f"it and its {relation} belong to different runs",
            root_id=execution.root_id,
            other=other.root_id,
        )


def _successor(facts: Facts, execution: ExecutionFact, found: Findings) -> None:
    if execution.status != "continued":
        return
    derived = derived_continuation(execution.execution_id)
    if execution.continued_as != str(derived) or derived not in facts.executions:
        found.violated(
            "identity.continuation-missing",
            execution.execution_id,
            "it was continued as new, and the execution that goes on is not there",
            derived=derived,
            recorded=execution.continued_as,
        )


def _step_key(checkpoint: CheckpointFact, chain: Sequence[CheckpointFact], found: Findings) -> None:
    key = f"{checkpoint.execution_id}:{checkpoint.step}:{checkpoint.visit}"
    if checkpoint.kind == "undo-fan-out" and (times := _times(checkpoint, chain)) > 1:
        key += f":again-{times}"
    if checkpoint.step_key != key:
        found.violated(
            "identity.step-key",
            checkpoint.execution_id,
            f"checkpoint {checkpoint.seq} has a step key of something else",
            step_key=checkpoint.step_key,
            derived=key,
        )


def _times(checkpoint: CheckpointFact, chain: Sequence[CheckpointFact]) -> int:
    """Which time the children are told to undo their work: once for each turning back."""
    turned, times = True, 0
    for entry in chain:
        if entry.kind == "compensating":
            turned = True
        elif turned and entry.kind == "undo-fan-out" and entry.of == checkpoint.of:
            turned, times = False, times + 1
        if entry.seq == checkpoint.seq:
            break
    return times


def _fanned_out(facts: Facts, checkpoint: CheckpointFact, found: Findings) -> None:
    """A fan-out's checkpoint tells how many children there must be."""
    announced = checkpoint.result.get("children") if isinstance(checkpoint.result, dict) else None
    parent, step, visit = checkpoint.execution_id, checkpoint.step, checkpoint.visit
    wanted = {derived_child(parent, step, visit, index) for index in range(announced or 0)}
    actual = {
        child.execution_id
        for child in facts.children.get(parent, ())
        if (child.parent_step, child.parent_visit) == (step, visit)
        and child.lineage_id == child.execution_id
    }
    if wanted != actual:
        found.violated(
            "identity.children",
            parent,
            f"the children of {step!r} are not those that its checkpoint announces",
            announced=announced,
            missing=sorted(map(str, wanted - actual)),
            unexpected=sorted(map(str, actual - wanted)),
        )
