"""What the verifier knows of loops, waits, joins, turning back and forks: break it, and see it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fencepost.records import EventName
from fencepost.verify import Verdict, checks, verify
from tests.integration.verify.breaks import BREAKS
from tests.integration.verify.copies import EVENTS, EXECUTIONS, Break, Copy
from tests.integration.verify.detours import DETOURS

ELSEWHERE = {
    "chain.epoch-fell",
    "epoch.redis-ahead",
    "identity.no-execution",
    "orphan.lease",
    "orphan.message",
    "refusal.landed",
}
"""In `test_breaks`, as they break two rules at once, and in `test_liveness`."""

COVERED = {code for _, code, _ in (*BREAKS, *DETOURS)} | ELSEWHERE


def test_healthy_journeys_violate_nothing(travelled: Copy) -> None:
    report = verify(travelled.url)
    assert report.violations == []
    verdicts = {line.number: line.verdict for line in report.invariants}
    assert verdicts[8] is Verdict.NOTHING  # nobody was a zombie
    assert {verdicts[number] for number in range(1, 8)} == {Verdict.OK}
    for number, examined in {
        1: {"forks": 1, "inherited checkpoints": 12},
        3: {"stops": 3, "joins": 13, "waits": 7, "decisions": 18, "signals": 3},
        6: {"orders to turn back": 6, "undos decided by people": 1},
        7: {"waiting executions": 3},
    }.items():
        assert examined.items() <= report.line(number).examined.items()


@pytest.mark.parametrize(
    ("invariant", "code", "broken"), DETOURS, ids=[b.__name__ for _, _, b in DETOURS]
)
def test_a_breach_is_reported_and_nothing_else(
    travelled: Copy, invariant: int, code: str, broken: Break
) -> None:
    broken(travelled)
    report = verify(travelled.url)
    found = [(violation.invariant, violation.code) for violation in report.violations]
    assert (invariant, code) in found, report.violations
    assert report.violated == [invariant], report.violations


def test_every_rule_has_a_breach() -> None:
    assert rules() - COVERED == set()


def rules() -> set[str]:
    """The codes of all violations that the engine's checks can report."""
    found: set[str] = set()
    for module in Path(checks.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value} if looks_like_a_code(node.value) else set()
    return found - {str(name) for name in EventName}


PREFIXES = {code.partition(".")[0] for code in COVERED}


def looks_like_a_code(text: str) -> bool:
    prefix, dot, rest = text.partition(".")
    return dot == "." and prefix in PREFIXES and rest.replace("-", "").isalpha()


def test_what_nobody_owned_is_inherited_by_forks_only(travelled: Copy) -> None:
    pad = travelled.checkpoint(travelled.started["reopened"], "step", "pad")
    travelled.change(pad, epoch=0, owner="")
    found = [v.code for v in verify(travelled.url).violations]
    assert found == ["epoch.stranger", "stale.checkpoint"]


def test_an_original_that_was_pruned_leaves_its_forks_sound(travelled: Copy) -> None:
    origin = travelled.started["origin"]
    for table in reversed(list(EXECUTIONS.metadata.tables.values())):
        if table is not EXECUTIONS and "execution_id" in table.c:
            family = travelled.rows(EXECUTIONS, root_id=origin)
            for member in family:
                if travelled.rows(table, execution_id=member["execution_id"]):
                    travelled.delete(table, execution_id=member["execution_id"])
    travelled.delete(EXECUTIONS, root_id=origin)
    report = verify(travelled.url)
    assert report.violations == []
    assert "what some forks were forked from isn't stored any more" in report.line(1).notes


def test_a_fork_is_verified_by_itself_against_its_original(travelled: Copy) -> None:
    fork = travelled.started["fork"]
    report = verify(travelled.url, run=fork)
    assert report.violations == []
    assert report.line(1).examined["forks"] == 1
    assert not report.line(1).notes
    event = travelled.row(EVENTS, execution_id=fork, name="execution.forked")
    travelled.delete(EVENTS, event_id=event["event_id"])
    assert [v.code for v in verify(travelled.url, run=fork).violations] == ["identity.fork"]
