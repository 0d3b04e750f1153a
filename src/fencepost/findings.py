"""`Finding`: what a check has found, where, and how to mend it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from types import CodeType, FunctionType
from typing import Any


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """It can't run, or not as it is meant to: what has errors isn't registered or started."""
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Source:
    """Where something is written.

    Attributes:
        file: Path, as Python knows it.
        line: From 1.
    """

    file: str
    line: int = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check has found.

    Attributes:
        code: Stable dotted identifier; `docs/reference/checks.md` explains it.
        severity: How bad it is.
        place: Where: a setting with its value, or `saga/step`.
        message: What is wrong there.
        fix: How to mend it.
        source: Where that is written, if it is known.
    """

    code: str
    severity: Severity
    place: str
    message: str
    fix: str
    source: Source | None = None

    def __str__(self) -> str:
        return f"{self.severity}: {self.place}: {self.message}; {self.fix} [{self.code}]"

    def to_dict(self) -> dict[str, Any]:
        """As JSON-compatible data."""
        source = self.source
        return {
            "code": self.code,
            "severity": str(self.severity),
            "place": self.place,
            "message": self.message,
            "fix": self.fix,
            "file": None if source is None else source.file,
            "line": None if source is None else source.line,
        }

    def written_in(self, source: Source | None) -> Finding:
        """The same, with a place in the source if it has none yet."""
        return self if self.source is not None else replace(self, source=source)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a check looks for.

    Attributes:
        code: Of its findings.
        severity: Of its findings, where nothing else is said.
        what: What is found, in a sentence.
        why: What goes wrong otherwise.
        mend: How to mend it.
    """

    code: str
    severity: Severity
    what: str
    why: str
    mend: str

    @property
    def anchor(self) -> str:
        """Its heading's anchor on the page `docs/reference/checks.md`."""
        return self.code.replace(".", "")

    def at(
        self,
        place: str,
        message: str,
        *,
        fix: str | None = None,
        severity: Severity | None = None,
        source: Source | None = None,
    ) -> Finding:
        """A finding of this rule.

        Args:
            place: Where.
            message: What is wrong there.
            fix: Instead of the rule's own.
            severity: Instead of the rule's own.
            source: Where that is written.
        """
        return Finding(
            self.code, severity or self.severity, place, message, fix or self.mend, source
        )


def errors_in(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are errors."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def source_of(function: Any) -> Source | None:
    """Where a function is written; None for what isn't written in Python."""
    code = getattr(function, "__code__", None)
    if isinstance(function, FunctionType) and isinstance(code, CodeType):
        return Source(code.co_filename, code.co_firstlineno)
    wrapped = getattr(function, "__wrapped__", None) or getattr(function, "__func__", None)
    return None if wrapped is None else source_of(wrapped)


__all__ = ["Finding", "Rule", "Severity", "Source", "errors_in", "source_of"]
