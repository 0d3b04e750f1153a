"""Invariant 7: nothing is orphaned."""

from __future__ import annotations

from fencepost.verify.facts import ExecutionFact, Facts, LeaseFact
from fencepost.verify.invariant import Findings


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
    elif execution.status == "queued" and (parent is None or parent.status != "waiting"):
        found.violated(
            "orphan.queued",
            execution.execution_id,
            "it waits for a place that nobody gives away: its parent is not waiting",
            parent_id=execution.parent_id,
            parent=None if parent is None else parent.status,
        )
    elif execution.status == "active" and not execution.scheduled:
        found.violated(
            "orphan.forgotten",
            execution.execution_id,
            "it is active, and no reaper will ever look at it: `due_at` is empty",
        )


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
