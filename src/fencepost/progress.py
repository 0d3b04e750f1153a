"""An execution's chain, with the questions that are asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from fencepost.records import Checkpoint, CheckpointKind

COMPENSATION = "compensation"
"""The step under which it is recorded that an execution turns back."""

REOPENED = "reopened"
"""The step under which it is recorded that a person had it go on."""

_RESULTS = (CheckpointKind.STEP, CheckpointKind.JOIN, CheckpointKind.WOKEN)

Visit = tuple[CheckpointKind, str, int]


class Progress:
    """All that is known of where an execution stands.

    Args:
        chain: Its checkpoints, oldest first.
    """

    def __init__(self, chain: Iterable[Checkpoint]) -> None:
        self.chain = tuple(chain)

    @cached_property
    def _index(self) -> Mapping[Visit, Checkpoint]:
        return {(entry.kind, entry.step, entry.visit): entry for entry in self.chain}

    def find(self, kind: CheckpointKind, step: str, visit: int = 1) -> Checkpoint | None:
        """The checkpoint of that kind for a visit to a step."""
        return self._index.get((kind, step, visit))

    def count(self, kind: CheckpointKind, step: str, *, before: int | None = None) -> int:
        """How many checkpoints of that kind there are for a step, before a place in the chain."""
        return sum(
            (entry.kind, entry.step) == (kind, step) and (before is None or entry.seq < before)
            for entry in self.chain
        )

    @property
    def start(self) -> Checkpoint:
        """The root of the chain; its result is the saga's input."""
        return self.chain[0]

    @cached_property
    def results(self) -> Mapping[str, Any]:
        """Recorded results of steps, joins and waits, by name; of several visits the last."""
        return {entry.step: entry.result for entry in self.chain if entry.kind in _RESULTS}

    @cached_property
    def turned_at(self) -> Checkpoint | None:
        """The checkpoint that began the compensation which is under way, or was the last.

        The last one: an execution may turn back again, where it is cancelled while it compensates,
        or told by its parent after its error branch had saved it.
        """
        for entry in reversed(self.chain):
            if entry.kind is CheckpointKind.REOPENED:
                return None
            if entry.kind is CheckpointKind.COMPENSATING:
                return entry
        return None

    @property
    def undone(self) -> bool:
        """Whether anything was undone."""
        return any(entry.kind is CheckpointKind.UNDO for entry in self.chain)
