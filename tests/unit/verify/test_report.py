"""What a report says, and how findings come into it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from fencepost.verify import (
    TITLES,
    Findings,
    Invariant,
    InvariantReport,
    Report,
    Verdict,
    Violation,
)

ID = uuid4()
AT = datetime(2026, 1, 1, tzinfo=UTC)


def report(*violations: Violation) -> Report:
    verdict = Verdict.VIOLATED if violations else Verdict.OK
    lines = [
        InvariantReport(number=3, title=TITLES[3], verdict=verdict, violations=list(violations)),
        InvariantReport(number=9, title=TITLES[9], verdict=Verdict.NOT_APPLICABLE),
    ]
    return Report(
        run=ID, database="sqlite:///x", at=AT, waited=0.0, executions={}, invariants=lines
    )


def test_findings_become_json():
    found = Findings(3)
    found.violated("chain.gap", ID, "a gap", ids=[ID], at=AT, by={ID: (1, 2)}, plain="x")
    (violation,) = found.violations
    assert violation.invariant == 3
    assert violation.facts == {
        "ids": [str(ID)],
        "at": "2026-01-01T00:00:00+00:00",
        "by": {str(ID): [1, 2]},
        "plain": "x",
    }
    assert str(violation) == f"[chain.gap] {ID}: a gap"


def test_a_finding_need_not_be_an_executions():
    found = Findings(7)
    found.violated("orphan.file", None, "a file without a row")
    assert str(found.violations[0]) == "[orphan.file] a file without a row"


def test_counts_add_up_and_notes_are_said_once():
    found = Findings(3)
    found.examined("chains")
    found.examined("chains", 2)
    found.note("once")
    found.note("once")
    assert found.counts == {"chains": 3}
    assert found.notes == ["once"]


def test_a_report_survives_json():
    found = Findings(3)
    found.violated("chain.gap", ID, "a gap", missing=[2])
    before = report(*found.violations)
    text = before.model_dump_json()
    assert json.loads(text)["ok"] is False
    assert Report.model_validate_json(text) == before
    assert before.violated == [3]
    assert [v.code for v in before.violations] == ["chain.gap"]


def test_a_report_without_violations_is_ok():
    assert report().ok
    assert report().line(9).verdict is Verdict.NOT_APPLICABLE
    with pytest.raises(KeyError):
        report().line(4)


def test_headings():
    assert Invariant(1, lambda _facts, _found: None).heading == TITLES[1]
    assert Invariant(1, lambda _facts, _found: None, title="Ours").heading == "Ours"
    assert Invariant(77, lambda _facts, _found: None).heading == "invariant 77"
    assert set(TITLES) == set(range(1, 10))


def test_violations_are_frozen():
    violation = Violation(invariant=1, code="a.b", execution_id=UUID(int=0), message="m")
    with pytest.raises(ValueError, match="frozen"):
        violation.code = "c"  # type: ignore[misc]
