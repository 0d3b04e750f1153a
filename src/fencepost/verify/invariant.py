"""`Invariant`: a numbered rule, and the check that looks for facts which break it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any
from uuid import UUID

from fencepost.verify.facts import Facts
from fencepost.verify.report import Violation

TITLES: Mapping[int, str] = {
    1: "One identity: ids survive every takeover, children's ids are the derived ones",
    2: "Epochs start at 1 and grow by one per owner; Redis is not ahead of SQL",
    3: "The checkpoint chain is one line: one root, no gap, no fork, epochs never fall",
    4: "No write carries an epoch older than the owner's at its commit",
    5: "Each effect key has at most one committed effect; none is in doubt",
    6: "What a compensated saga had done is undone exactly once, newest first",
    7: "Nothing is orphaned: no live child, lease, message, file or lock of what has ended",
    8: "Every refused write is on record, and its payload is nowhere in the state",
    9: "Each module is promoted at most once per release; its file is the ledger's",
}
"""The nine guarantees. An application may add lines of its own with other numbers."""


@dataclass
class Findings:
    """Collects what one check examines and finds.

    Attributes:
        number: The invariant's.
    """

    number: int
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def examined(self, what: str, count: int = 1) -> None:
        """Count facts that were looked at; a check that counts nothing is no proof.

        Args:
            what: Their kind, in the plural: `checkpoints`.
            count: How many.
        """
        self.counts[what] += count

    def note(self, text: str) -> None:
        """Say what was not looked at, or how to read the verdict. Once per text."""
        if text not in self.notes:
            self.notes.append(text)

    def violated(
        self,
        code: str,
        execution_id: UUID | None,
        message: str,
        *,
        transient: bool = False,
        **facts: Any,
    ) -> None:
        """Report a broken rule; see `Violation` for the arguments.

        Args:
            code: Stable dotted identifier.
            execution_id: Where it was found.
            message: One sentence.
            transient: Whether it may go away by itself.
            **facts: The values that show it; ids and times become text.
        """
        self.violations.append(
            Violation(
                invariant=self.number,
                code=code,
                execution_id=execution_id,
                message=message,
                facts={name: _plain(value) for name, value in facts.items()},
                transient=transient,
            )
        )


Check = Callable[[Facts, Findings], None]


@dataclass(frozen=True)
class Invariant:
    """A rule with its check; several may share a number, and their findings are one line then.

    Attributes:
        number: 1 to 9 for the guarantees, any other for an application's own.
        check: Called with the facts of one or more whole runs (`facts.roots`); in a large
            database several times, with other runs each time. Reports to the findings.
        title: For a number that is not one of the nine.
    """

    number: int
    check: Check
    title: str = ""

    @property
    def heading(self) -> str:
        """The line's title."""
        return self.title or TITLES.get(self.number, f"invariant {self.number}")


def _plain(value: Any) -> Any:
    match value:
        case UUID():
            return str(value)
        case datetime() | date():
            return value.isoformat()
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case _:
            return value
