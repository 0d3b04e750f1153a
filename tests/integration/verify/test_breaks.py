"""A verifier that can't fail is worthless: break a finished run, and see that very breach."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.verify import Verdict, verify
from tests.integration.verify.breaks import BREAKS
from tests.integration.verify.copies import CHECKPOINTS, EXECUTIONS, Break, Copy


def test_a_healthy_run_violates_nothing(copy: Copy) -> None:
    report = verify(copy.url, run=copy.root)
    assert report.ok
    assert report.violations == []
    verdicts = {line.number: line.verdict for line in report.invariants}
    assert verdicts == dict.fromkeys(range(1, 9), Verdict.OK) | {9: Verdict.NOT_APPLICABLE}
    assert report.executions == {"compensated": 3, "continued": 1, "succeeded": 4}


@pytest.mark.parametrize(
    ("invariant", "code", "broken"), BREAKS, ids=[b.__name__ for _, _, b in BREAKS]
)
def test_a_breach_is_reported_and_nothing_else(
    copy: Copy, invariant: int, code: str, broken: Break
) -> None:
    broken(copy)
    report = verify(copy.url, run=copy.root)
    found = [(violation.invariant, violation.code) for violation in report.violations]
    assert (invariant, code) in found, report.violations
    assert report.violated == [invariant], report.violations
    assert not report.ok


def test_every_invariant_of_the_engine_has_a_breach() -> None:
    assert {invariant for invariant, _, _ in BREAKS} == set(range(1, 9))


def test_an_epoch_that_falls_is_stale_as_well(copy: Copy) -> None:
    """A checkpoint of an older epoch behind one of a newer breaks 3 and 4 by itself."""
    entries = copy.rows(CHECKPOINTS, execution_id=copy.root, kind="step")
    last, first = entries[-1], entries[0]
    copy.update(
        CHECKPOINTS,
        {"checkpoint_id": last["checkpoint_id"]},
        epoch=first["epoch"],
        owner=first["owner"],
    )
    report = verify(copy.url, run=copy.root)
    assert [v.code for v in report.violations] == ["chain.epoch-fell", "stale.checkpoint"]


def test_a_refused_write_that_landed_is_stale_as_well(copy: Copy) -> None:
    """What the zombie was refused is there all the same, with the zombie's epoch: 4 and 8."""
    child = copy.child(copy.root, 0)
    stage, attest = (copy.checkpoint(child, "step", step) for step in ("stage", "attest"))
    copy.update(
        CHECKPOINTS,
        {"checkpoint_id": attest["checkpoint_id"]},
        epoch=stage["epoch"],
        owner=stage["owner"],
        result=attest["result"] | {"by_epoch": 1},
    )
    report = verify(copy.url, run=copy.root)
    assert report.violated == [4, 5, 8]
    assert {v.code for v in report.violations} == {
        "stale.checkpoint",
        # Its transactional effect is the rightful owner's.
        "effect.without-checkpoint",
        "refusal.landed",
    }


def test_a_row_that_is_gone_leaves_strays_in_the_whole_database(copy: Copy) -> None:
    child = copy.child(copy.second, 1)
    copy.delete(EXECUTIONS, execution_id=child)
    report = verify(copy.url)
    strays = [v for v in report.violations if v.code == "identity.no-execution"]
    assert [v.execution_id for v in strays] == [child]
    assert report.violated == [1]


def test_any_execution_of_the_run_will_do(copy: Copy) -> None:
    by: list[Any] = [copy.root, str(copy.second), copy.child(copy.second, 2)]
    assert {verify(copy.url, run=run).run for run in by} == {copy.root}
