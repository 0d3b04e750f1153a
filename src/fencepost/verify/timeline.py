"""Who owned an execution, told from its audit events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fencepost.verify.names import ACQUIRED, RAISED

if TYPE_CHECKING:
    from fencepost.verify.facts import CheckpointFact, EventFact


@dataclass(frozen=True, slots=True)
class Tenure:
    """One epoch of an execution.

    Attributes:
        epoch: From 1.
        owner: Who may write in it; None where the epoch was raised to shut everybody out.
        after_seq: The head of the chain when it began.
        at: When it began, by the database server's clock.
        raised_by: The execution whose compensation raised the epoch, if that is how it began.
    """

    epoch: int
    owner: str | None
    after_seq: int | None
    at: datetime
    raised_by: str | None = None

    def began_before(self, checkpoint: CheckpointFact) -> bool:
        """Whether the checkpoint was committed when this epoch had begun.

        Told by the head that was recorded under the row's lock; clocks are asked only where
        there is no such record, because a clock may be set back.
        """
        if self.after_seq is not None:
            return checkpoint.seq > self.after_seq
        return checkpoint.created_at > self.at


class Timeline:
    """The epochs of one execution, in the order of their events.

    Args:
        execution_id: Whose.
        events: All its audit events, oldest first.
    """

    def __init__(self, execution_id: UUID, events: Iterable[EventFact]) -> None:
        self.tenures = tuple(_tenures(str(execution_id), events))
        self._by_epoch: dict[int, Tenure] = {}
        for tenure in self.tenures:
            self._by_epoch.setdefault(tenure.epoch, tenure)

    def of(self, epoch: int) -> Tenure | None:
        """The tenure with this epoch."""
        return self._by_epoch.get(epoch)

    def owned(self, epoch: int, owner: str | None) -> bool:
        """Whether this owner ever held this epoch."""
        return any((t.epoch, t.owner) == (epoch, owner) for t in self.tenures)

    def successor_before(self, checkpoint: CheckpointFact) -> Tenure | None:
        """A tenure of a higher epoch that had begun when the checkpoint was committed."""
        for tenure in self.tenures:
            if tenure.epoch > checkpoint.epoch and tenure.began_before(checkpoint):
                return tenure
        return None


def _tenures(execution_id: str, events: Iterable[EventFact]) -> Iterable[Tenure]:
    for event in events:
        if event.name == ACQUIRED:
            yield Tenure(event.epoch, event.owner, _head(event.details), event.at)
        elif event.name == RAISED:
            by = event.details.get("by")
            # Only the execution that raises its own epoch keeps its owner.
            owner = event.owner if by == execution_id else None
            yield Tenure(event.epoch, owner, _head(event.details), event.at, str(by))


def _head(details: Any) -> int | None:
    head = details.get("head_seq")
    return head if isinstance(head, int) else None
