"""Names that must come out the same on every worker and after every takeover."""

from __future__ import annotations

from uuid import NAMESPACE_URL, UUID, uuid5

from fencepost.errors import SagaDefinitionError

# Any fixed UUID would do; changing it would change the ids of executions in flight.
NAMESPACE = uuid5(NAMESPACE_URL, "urn:fencepost:execution")


def step_key(execution_id: UUID, step: str, visit: int) -> str:
    """The stable name of one visit to one step."""
    return f"{execution_id}:{step}:{visit}"


def again(key: str, times: int) -> str:
    """The step key of what is recorded of one visit for the n-th time, from 2 on."""
    return f"{key}:again-{times}"


def keyed_execution_id(saga: str, key: str) -> UUID:
    """The id of the execution that owns a business key."""
    return uuid5(NAMESPACE, f"key\x1f{saga}\x1f{key}")


def child_id(parent_id: UUID, step: str, visit: int, index: int) -> UUID:
    """The id of the child at `index` (from 0) of a fan-out."""
    return uuid5(NAMESPACE, f"child\x1f{parent_id}\x1f{step}\x1f{visit}\x1f{index}")


def continuation_id(execution_id: UUID) -> UUID:
    """The id of the execution that continues this one as new."""
    return uuid5(NAMESPACE, f"continue\x1f{execution_id}")


def fan_out_id(parent_id: UUID, step: str, visit: int) -> UUID:
    """The Celery group id of a fan-out's chord."""
    return uuid5(NAMESPACE, f"fan-out\x1f{parent_id}\x1f{step}\x1f{visit}")


def start_checkpoint_id(execution_id: UUID) -> UUID:
    """The id of the chain's root, so that a repeated start inserts the same row."""
    return uuid5(NAMESPACE, f"start\x1f{execution_id}")


def inherited_checkpoint_id(execution_id: UUID, seq: int) -> UUID:
    """The id of a checkpoint in a fork's chain that is a copy of another chain's."""
    return uuid5(NAMESPACE, f"inherited\x1f{execution_id}\x1f{seq}")


NAME_LIMIT = 100
"""Characters of a step's or saga's name."""


def check_name(name: str, what: str) -> str:
    """A name that can stand in a step key.

    Raises:
        SagaDefinitionError: It is empty, too long, or has a colon or white space in it.
    """
    if not name or len(name) > NAME_LIMIT or ":" in name or any(c.isspace() for c in name):
        raise SagaDefinitionError(
            f"{name!r} can't name a {what}: 1 to {NAME_LIMIT} characters, no colon or white space"
        )
    return name
