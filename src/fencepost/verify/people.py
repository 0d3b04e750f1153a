"""What people have decided about steps that were parked, as the audit trail tells it."""

from __future__ import annotations

from uuid import UUID

from fencepost.verify.facts import Facts
from fencepost.verify.names import UNPARKED


def decided(facts: Facts, execution_id: UUID, how: str, step_key: str) -> bool:
    """Whether somebody has decided so about a visit to a step.

    Args:
        facts: Of its run.
        execution_id: Whose step.
        how: `skip` or `resolve`.
        step_key: Of the visit.
    """
    directives = (
        event.details.get("directive")
        for event in facts.events.get(execution_id, ())
        if event.name == UNPARKED
    )
    return step_key in {
        f"{execution_id}:{told.get('step')}:{told.get('visit')}"
        for told in directives
        if isinstance(told, dict) and told.get("do") == how
    }
