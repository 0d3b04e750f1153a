"""Cutting a chain at its turning points: where it went forward, and where back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from fencepost.verify.facts import CheckpointFact, ExecutionFact

Visit = tuple[str, int]

COMPENSATING = "compensating"
REOPENED = "reopened"


@dataclass(frozen=True)
class Turn:
    """One turning back.

    An execution may turn back again: where it is cancelled while it undoes its work, where its
    parent tells it to after its error branch had saved it, or where a person had it go on.

    Attributes:
        entered: The checkpoint that says why.
        before: All that was committed before that.
        after: What followed, up to what ended this turn.
        ended_by: The next turning back, or a person's decision to go on; None for the last turn.
    """

    execution: ExecutionFact
    entered: CheckpointFact
    before: tuple[CheckpointFact, ...]
    after: tuple[CheckpointFact, ...]
    ended_by: CheckpointFact | None

    @property
    def branch(self) -> str | None:
        """The error branch that was taken."""
        branch: str | None = self.entered.told("branch")
        return branch

    @property
    def code(self) -> str | None:
        """Why it turned back."""
        code: str | None = self.entered.told("failure", "code")
        return code

    @cached_property
    def undone(self) -> tuple[CheckpointFact, ...]:
        """The undos, in the order of the chain."""
        return tuple(c for c in self.after if c.kind == "undo")

    @property
    def in_branch(self) -> bool:
        """Whether its error branch was begun: everything was undone by then."""
        return any(c.kind in ("step", "branch-failed") for c in self.after)

    @property
    def over(self) -> bool:
        """Whether nothing is left to be undone."""
        if self.ended_by is not None:
            return self.in_branch or self.ended_by.kind == REOPENED
        return self.in_branch or self.execution.ended

    @property
    def reopened(self) -> bool:
        """Whether a person had it go forward again."""
        return self.ended_by is not None and self.ended_by.kind == REOPENED


def turns_of(execution: ExecutionFact, chain: Sequence[CheckpointFact]) -> tuple[Turn, ...]:
    """All turning points of a chain, in order."""
    entries = tuple(chain)
    marks = [n for n, entry in enumerate(entries) if entry.kind in (COMPENSATING, REOPENED)]
    turns = []
    for mark, following in pairwise([*marks, len(entries)]):
        if entries[mark].kind == COMPENSATING:
            ended_by = entries[following] if following < len(entries) else None
            after = entries[mark + 1 : following]
            turns.append(Turn(execution, entries[mark], entries[:mark], after, ended_by))
    return tuple(turns)


def forward(chain: Sequence[CheckpointFact]) -> Iterator[CheckpointFact]:
    """What was committed on the way forward; turning points and reopenings are no part of it."""
    back = False
    for entry in chain:
        if entry.kind in (COMPENSATING, REOPENED):
            back = entry.kind == COMPENSATING
        elif not back:
            yield entry
