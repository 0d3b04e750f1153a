"""What a verification says: for people as a table, for machines as JSON."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, computed_field


class Verdict(StrEnum):
    """What is known about one invariant."""

    OK = "ok"
    VIOLATED = "violated"
    NOTHING = "nothing to check"
    """The check ran and met no fact of its kind: that proves nothing."""
    NOT_APPLICABLE = "not applicable"
    """No check of it was asked for."""


class Violation(BaseModel):
    """One broken rule, with the stored facts that show it.

    Attributes:
        invariant: Its number in the guarantees, 1 to 9.
        code: Stable dotted identifier of the very rule, such as `chain.gap`.
        execution_id: Where it was found; None if that is not an execution's.
        message: One sentence for a person.
        facts: The values that contradict each other; JSON-compatible.
        transient: It may go away by itself (a late duplicate in a queue, say): `settle` waits
            for that before the report is final.
    """

    model_config = ConfigDict(frozen=True)

    invariant: int
    code: str
    execution_id: UUID | None
    message: str
    facts: dict[str, Any] = Field(default_factory=dict)
    transient: bool = False

    def __str__(self) -> str:
        where = "" if self.execution_id is None else f"{self.execution_id}: "
        return f"[{self.code}] {where}{self.message}"


class InvariantReport(BaseModel):
    """One line of the report.

    Attributes:
        examined: How many facts of each kind were looked at.
        notes: What was not looked at and why, and how to read the verdict.
    """

    number: int
    title: str
    verdict: Verdict
    examined: dict[str, int] = Field(default_factory=dict)
    violations: list[Violation] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)


class Report(BaseModel):
    """The outcome of a verification.

    Attributes:
        run: The root execution whose run was verified; None for the whole database.
        database: Its URL, without the password.
        at: When the facts were read for the last time.
        waited: Seconds that passed until transient findings were gone.
        executions: How many there are of each status.
        invariants: By number.
    """

    run: UUID | None
    database: str
    at: datetime
    waited: float
    executions: dict[str, int]
    invariants: list[InvariantReport]

    @computed_field  # type: ignore[prop-decorator] # mypy knows no decorated properties
    @property
    def ok(self) -> bool:
        """Whether no invariant is violated."""
        return not self.violations

    @property
    def violations(self) -> list[Violation]:
        """All violations, by invariant."""
        return [violation for line in self.invariants for violation in line.violations]

    @property
    def violated(self) -> list[int]:
        """Numbers of the violated invariants."""
        return [line.number for line in self.invariants if line.verdict is Verdict.VIOLATED]

    def line(self, number: int) -> InvariantReport:
        """The line of one invariant.

        Raises:
            KeyError: The report has none of that number.
        """
        for line in self.invariants:
            if line.number == number:
                return line
        raise KeyError(number)
