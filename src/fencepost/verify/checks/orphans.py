"""Invariant 7: nothing is orphaned."""

from __future__ import annotations

from fencepost.verify.facts import CheckpointFact, ExecutionFact, Facts, LeaseFact
from fencepost.verify.invariant import Findings

FAN_OUTS = ("fan-out", "stop", "undo-fan-out")


def check(facts: Facts, found: Findings) -> None:
    """Live children of what has ended; leases and messages of what has ended; the forgotten."""
    found.examined("executions", len(facts.executions))
    for execution in facts.executions.values():
        if not execution.ended:
            _live(facts, execution, found)
    if facts.leases_unread is not None:
        found.note(f"leases were not looked at: {facts.leases_unread}")
    if facts.messages_unread is not None:
        found.note(f"queues were not looked at: {facts.messages_unread}")
    for lease in facts.leases.values():
        if lease.owner is not None or lease.listed:
            found.examined("leases")
            _lease(facts.executions[lease.execution_id], lease, found)
    for execution_id, messages in facts.messages.items():
        found.examined("messages", len(messages))
        execution = facts.executions[execution_id]
        for message in messages if execution.ended else ():
            found.violated(
                "orphan.message",
                execution_id,
                f"it is {execution.status}, and a message of {message.task} is still in"
                f" {message.place!r}",
                transient=True,
                task=message.task,
                place=message.place,
            )


def _live(facts: Facts, execution: ExecutionFact, found: Findings) -> None:
    parent = facts.executions.get(execution.parent_id) if execution.parent_id else None
    if parent is not None and parent.ended:
        found.violated(
            "orphan.child",
            execution.execution_id,
            f"it is {execution.status} under a parent that is {parent.status}",
            parent_id=parent.execution_id,
        )
    elif execution.status == "queued" and not _may_get_a_place(facts, execution, parent):
        found.violated(
            "orphan.queued",
            execution.execution_id,
            "it waits for a place that nobody gives away: its parent doesn't wait for it",
            parent_id=execution.parent_id,
            parent=None if parent is None else parent.status,
        )
    elif execution.status == "active" and not execution.scheduled:
        found.violated(
            "orphan.forgotten",
            execution.execution_id,
            "it is active, and no reaper will ever look at it: `due_at` is empty",
        )
    elif execution.status == "waiting" and execution.paused_at is None:
        found.examined("waiting executions")
        wrong = _waits_in_vain(facts, execution, parent)
        if wrong is not None:
            found.violated(
                "orphan.forgotten",
                execution.execution_id,
                f"it waits, and {wrong}",
                wake_at=execution.wake_at,
                waits_for=execution.waits_for,
                turned_back=execution.turned_back,
            )


def _may_get_a_place(facts: Facts, child: ExecutionFact, parent: ExecutionFact | None) -> bool:
    """Whether the fan-out that it belongs to is what its parent is at."""
    fan_out = None if parent is None else _fan_out(facts, parent)
    mine = (child.parent_step, child.parent_visit)
    return fan_out is not None and fan_out.of == mine


def _waits_in_vain(
    facts: Facts, execution: ExecutionFact, parent: ExecutionFact | None
) -> str | None:
    """Why nothing will ever have it go on; None if something will."""
    if execution.turned_back:
        if parent is None or parent.phase != "compensating":
            return (
                "it would have to be told by its parent to undo its work, which doesn't turn back"
            )
        return None
    if _fan_out(facts, execution) is not None:
        return None if execution.scheduled else "no reaper will look for its children's ends"
    head = _head(facts, execution)
    kind = None if head is None else head.kind
    if kind == "wait" and (execution.wake_at or execution.waits_for):
        return _unheard(facts, execution)
    return f"not for anything: its last checkpoint is of kind {kind}"


def _unheard(facts: Facts, execution: ExecutionFact) -> str | None:
    if execution.scheduled:
        return None
    if execution.wake_at is not None:
        return "no reaper will look whether its time has come"
    signals = facts.signals.get(execution.execution_id, ())
    if any(signal.pending and signal.name == execution.waits_for for signal in signals):
        return "no reaper will look at it, though its signal is there"
    return None


def _fan_out(facts: Facts, execution: ExecutionFact) -> CheckpointFact | None:
    """The fan-out whose children it waits for, in the direction in which it goes."""
    head = _head(facts, execution)
    if head is None or head.kind not in FAN_OUTS:
        return None
    back = execution.phase == "compensating"
    return head if (head.kind == "undo-fan-out") is back else None


def _head(facts: Facts, execution: ExecutionFact) -> CheckpointFact | None:
    chain = facts.chains.get(execution.execution_id, ())
    return chain[-1] if chain else None


def _lease(execution: ExecutionFact, lease: LeaseFact, found: Findings) -> None:
    if execution.ended:
        found.violated(
            "orphan.lease",
            execution.execution_id,
            f"it is {execution.status}, and Redis still has a lease of it",
            transient=True,
            owner=lease.owner,
            epoch=lease.epoch,
            in_sorted_set=lease.listed,
        )
