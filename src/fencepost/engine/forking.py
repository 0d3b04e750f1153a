"""Forks: a new execution whose chain begins with a part of another's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

from fencepost import serde
from fencepost.commands import Command, Definition, Finish, queue_of
from fencepost.decide import RETURN_STEP, decide
from fencepost.engine.refusals import wrong_state
from fencepost.errors import CheckpointForkError, FencepostError
from fencepost.records import (
    Checkpoint,
    CheckpointKind,
    Execution,
    NewExecution,
    Phase,
    Status,
)
from fencepost.saga import Saga, StepNode

THE_SAME: Final[Any] = object()
"""The original's input."""

FORWARD = frozenset(
    {
        CheckpointKind.STEP,
        CheckpointKind.STEP_FAILED,
        CheckpointKind.FAN_OUT,
        CheckpointKind.STOP,
        CheckpointKind.JOIN,
        CheckpointKind.DECISION,
        CheckpointKind.WAIT,
        CheckpointKind.WOKEN,
    }
)
"""What was done on the way forward."""

OPEN = frozenset({CheckpointKind.FAN_OUT, CheckpointKind.STOP, CheckpointKind.WAIT})
"""What children, a time or a signal were still to be waited for after."""


def planned(
    original: Execution,
    chain: Sequence[Checkpoint],
    definition: Definition | None,
    *,
    at: int | None,
    value: Any,
) -> NewExecution:
    """The fork of an execution.

    Args:
        original: Whose fork.
        chain: Its checkpoints.
        definition: Of its version, where it is known.
        at: The last entry that comes along; None for all that can.
        value: Its input, or `THE_SAME`.

    Raises:
        ExecutionStateError: What would come along was undone, may yet be, or can't be the
            beginning of a chain.
        PayloadError: The input isn't of the saga's input type.
    """
    prefix = tuple(_inherited(original, chain, at))
    data = _input(original, definition, value)
    phase = _phase(original, definition, prefix)
    queue = None if original.status.ended else original.queue
    if definition is not None:
        start = _changed(chain[0], data)
        queue = queue_of(_next(original, definition, phase, [start, *prefix]), definition)
    fork_id = uuid4()
    deadline = original.deadline_at
    return NewExecution(
        execution_id=fork_id,
        saga=original.saga,
        version=original.version,
        input=data,
        input_digest=serde.digest(data),
        lineage_id=fork_id,
        root_id=fork_id,
        queue=queue,
        priority=original.priority,
        deadline_in=None if deadline is None else deadline - original.created_at,
        forked_from=original.execution_id,
        prefix=prefix,
        phase=phase,
    )


def _input(original: Execution, definition: Definition | None, value: Any) -> Any:
    if value is THE_SAME:
        return original.input
    declared = object if definition is None else definition.input_type
    return serde.dump(value, declared, what=f"input of saga {original.saga!r}")


def _changed(start: Checkpoint, data: Any) -> Checkpoint:
    values = {name: getattr(start, name) for name in Checkpoint.__slots__}
    return Checkpoint(**values | {"result": data})


def _inherited(
    original: Execution, chain: Sequence[Checkpoint], at: int | None
) -> Sequence[Checkpoint]:
    """The entries that come along."""
    usable = _usable(chain)
    if at is None:
        at = _default(original, chain, usable)
    if not 0 <= at <= len(usable):
        furthest = _closed(usable, len(usable))
        beyond = f"entry {len(usable) + 1} is no work on the way forward" * (at > len(usable))
        raise _refused(original, f"{beyond or 'there is no such entry'}: say --at 0", furthest)
    if not at:
        return ()
    entry = usable[at - 1]
    if entry.kind in OPEN:
        what = "wait" if entry.kind is CheckpointKind.WAIT else "fan-out"
        raise _refused(
            original,
            f"entry {at} is in the middle of the {what} {entry.step!r}: say --at",
            _closed(usable, at),
        )
    _refuse_undone(original, chain, usable[:at])
    if at == len(chain) - 1 and original.status in (Status.SUCCEEDED, Status.CONTINUED):
        raise _refused(original, "nothing would be left to do: say --at 0", _closed(usable, at - 1))
    return usable[:at]


def _usable(chain: Sequence[Checkpoint]) -> Sequence[Checkpoint]:
    usable = []
    for entry in chain[1:]:
        if entry.kind not in FORWARD or entry.step == RETURN_STEP:
            break
        usable.append(entry)
    return usable


def _closed(usable: Sequence[Checkpoint], at: int) -> int:
    """The last entry, at most this one, that isn't in the middle of anything."""
    while at and usable[at - 1].kind in OPEN:
        at -= 1
    return at


def _default(original: Execution, chain: Sequence[Checkpoint], usable: Sequence[Checkpoint]) -> int:
    whole = len(usable) == len(chain) - 1
    if original.status in (Status.SUCCEEDED, Status.CONTINUED) and whole:
        raise _refused(
            original,
            "nothing of it has failed, so say with which entry the fork begins: --at 0",
            _closed(usable, len(usable) - 1),
        )
    return _closed(usable, len(usable))


def _refuse_undone(
    original: Execution, chain: Sequence[Checkpoint], wanted: Sequence[Checkpoint]
) -> None:
    """Nothing comes along that the original has undone, or may undo yet."""
    if original.status is not Status.PARKED and not original.status.ended:
        raise _refused(original, "it is under way, and may undo what would come along: say --at", 0)
    if original.phase is Phase.COMPENSATING and not original.status.ended:
        raise _refused(original, "it undoes what would come along: say --at", 0)
    undone = {(e.step, e.visit) for e in chain if e.kind is CheckpointKind.UNDO}
    for number, entry in enumerate(wanted):
        if (entry.step, entry.visit) in undone:
            raise _refused(
                original,
                f"its work is undone from entry {number + 1} ({entry.step!r}) on: say --at",
                _closed(wanted, number),
            )


def _refused(original: Execution, why: str, at: int) -> FencepostError:
    zero = why.endswith("--at 0")
    number = f" to {at}" if zero and at else "" if zero else f" {at}"
    return wrong_state(
        original,
        f"{why}{number}",
        following=f"fencepost fork {original.execution_id} --at {at} --why '...'",
    )


def _phase(
    original: Execution, definition: Definition | None, prefix: Sequence[Checkpoint]
) -> Phase:
    done = {entry.step for entry in prefix if entry.kind is CheckpointKind.STEP}
    if isinstance(definition, Saga):
        pivots = {n.name for n in definition.all_nodes() if isinstance(n, StepNode) and n.pivot}
        return Phase.PAST_PIVOT if pivots & done else Phase.FORWARD
    if prefix and definition is None and original.phase is Phase.PAST_PIVOT:
        raise wrong_state(
            original,
            "it has passed its pivot, and where that is only its saga's definition tells: name"
            " your app",
            following=f"fencepost fork {original.execution_id} --app APP --why '...'",
        )
    return Phase.FORWARD


def _next(
    original: Execution, definition: Definition, phase: Phase, chain: Sequence[Checkpoint]
) -> Command:
    try:
        command = decide(definition, phase, chain)
    except CheckpointForkError as problem:
        raise wrong_state(original, problem.message) from None
    if isinstance(command, Finish):
        raise _refused(original, "nothing would be left to do: say --at 0", 0)
    return command
