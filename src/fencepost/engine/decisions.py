"""What people decide about effects whose outcome nobody knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fencepost import serde
from fencepost.effects import Effect, EffectRecord
from fencepost.effects.model import UNKNOWN_OUTCOME
from fencepost.engine.refusals import said
from fencepost.errors import EffectNotFoundError, ExecutionStateError
from fencepost.ports import EffectStore, ExecutionStore
from fencepost.records import Execution


@dataclass(frozen=True, slots=True)
class Decision:
    """What came of a decision.

    Attributes:
        effect: As it is recorded now.
        execution: Whose effect it is; it goes on unless something else of it is in doubt.
        left: What else of it is in doubt.
    """

    effect: EffectRecord
    execution: Execution
    left: tuple[EffectRecord, ...]


def decide_effect(
    executions: ExecutionStore,
    effects: EffectStore,
    sink: str,
    key: str,
    *,
    landed: bool,
    result: Any,
    by: str,
    why: str,
    declared: Effect[Any, Any] | None,
) -> Decision:
    """Record a person's decision, and let the execution go on if nothing else is in doubt.

    Args:
        executions: The truth.
        effects: What is known of effects.
        sink: Where the effect lands.
        key: Its key.
        landed: What the person has found out.
        result: What the sink answered, or would have; only where it has landed.
        by: Who decides.
        why: Kept in the audit trail.
        declared: The effect as the code has it, to hold the result to its type.

    Raises:
        EffectNotFoundError: There is no such effect.
        ExecutionStateError: Its outcome is known, or its execution isn't parked.
        PayloadError: The result isn't of the declared type, or somebody or a reason is missing.
    """
    said(by, why)
    if landed:
        wanted = object if declared is None else declared.result_type
        result = serde.dump(result, wanted, what=f"result of effect {key!r}")
        serde.load(result, wanted, what=f"result of effect {key!r}")
    record = effects.resolve(sink, key, landed=landed, result=result, by=by, why=why)
    left = tuple(
        other
        for other in effects.of_execution(record.execution_id)
        if other.status in UNKNOWN_OUTCOME
    )
    return Decision(record, _go_on(executions, record, left, by, why), left)


def _go_on(
    executions: ExecutionStore,
    record: EffectRecord,
    left: tuple[EffectRecord, ...],
    by: str,
    why: str,
) -> Execution:
    if not left:
        try:
            return executions.unpark(
                record.execution_id, f"{record.effect} is {record.status}: {why}", by=by
            )
        except ExecutionStateError:
            # Another decision about the same execution, at the same time, has let it go on.
            pass
    execution = executions.get(record.execution_id)
    if execution is None:
        raise EffectNotFoundError(record.sink, record.key)
    return execution
