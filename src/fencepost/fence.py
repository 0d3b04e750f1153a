"""The fence token: what a write carries to prove that its writer is still the owner."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class FenceToken:
    """Captured when a step begins; checked where a write lands.

    Attributes:
        execution_id: The execution that the write belongs to.
        epoch: The owner's epoch, from 1. Grows by one at each change of owner.
        owner: Unique for each acquisition, so that an epoch alone is never trusted.
        step_key: `"{execution_id}:{step}:{visit}"`; the same across takeovers.
    """

    execution_id: UUID
    epoch: int
    owner: str
    step_key: str
