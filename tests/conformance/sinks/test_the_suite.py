"""The suite passes a sink that keeps to the contract, and catches those that don't."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conformance.sinks import broken

ROOT = Path(__file__).parents[3]

STALE_AFTER_ADVANCE = "test_nothing_stale_lands_after_advance_has_returned"
STALE_AFTER_WRITE = "test_nothing_stale_lands_after_the_new_owners_write"
KEY_TWICE = "test_one_key_at_the_same_time_lands_once"
KEY_OF_TWO = "test_one_key_of_two_executions_lands_once"

# What must be among the failures of each.
CAUGHT_BY = {
    broken.ChecksThenWrites: {STALE_AFTER_ADVANCE, STALE_AFTER_WRITE, KEY_TWICE, KEY_OF_TWO},
    broken.ChecksThenWritesInOneTransactionEach: {
        STALE_AFTER_ADVANCE,
        STALE_AFTER_WRITE,
        KEY_TWICE,
        KEY_OF_TWO,
    },
    broken.BeginsTooLate: {STALE_AFTER_ADVANCE, STALE_AFTER_WRITE, KEY_TWICE, KEY_OF_TWO},
    broken.HasNoFence: {"test_a_stale_write_is_refused", STALE_AFTER_ADVANCE},
    broken.HasOneMarkForAll: {"test_executions_do_not_fence_each_other"},
    broken.RefusesItsOwner: {"test_each_key_is_applied", "test_advancing_writes_nothing"},
    broken.LowersItsMark: {"test_a_refused_attempt_does_not_lower_the_mark"},
    broken.ForgetsKeys: {"test_a_key_is_applied_once", KEY_TWICE},
    broken.LooksForTheKeyFirst: {
        "test_a_zombie_is_refused_even_where_its_key_is_known",
        "test_the_new_owner_gets_the_first_result",
    },
    broken.TakesAnyRequestForTheFirst: {"test_a_used_key_with_another_digest_is_a_conflict"},
    broken.ForgetsAtItsRestart: {"test_what_a_sink_knows_survives_its_restart"},
}

# Those that are wrong only while others are writing.
RACES = [broken.ChecksThenWrites, broken.ChecksThenWritesInOneTransactionEach, broken.BeginsTooLate]


@pytest.fixture(scope="module")
def failures(memory_folder: Path) -> dict[str, set[str]]:
    """The failed tests of each class in `broken.py`."""
    report = memory_folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line"]
    done = subprocess.run(
        [
            *command,
            f"--junit-xml={report}",
            f"--basetemp={memory_folder / 'tests'}",
            "tests/conformance/sinks/broken.py",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), f"{done.stdout}\n{done.stderr}"
    found: dict[str, set[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        failed = found.setdefault(case.attrib["classname"].rpartition(".")[2], set())
        assert case.find("error") is None, ElementTree.tostring(case)
        if case.find("failure") is not None:
            failed.add(case.attrib["name"])
    return found


def test_a_sink_that_keeps_to_the_contract_passes(failures: dict[str, set[str]]) -> None:
    assert failures["TestRight"] == set()


def test_there_is_an_expectation_for_each(failures: dict[str, set[str]]) -> None:
    assert {f"Test{kind.__name__}" for kind in CAUGHT_BY} == set(failures) - {"TestRight"}


@pytest.mark.parametrize("kind", CAUGHT_BY, ids=lambda kind: kind.__name__)
def test_a_sink_that_does_not_is_caught(
    failures: dict[str, set[str]], kind: type[broken.Right]
) -> None:
    failed = failures[f"Test{kind.__name__}"]
    assert failed >= CAUGHT_BY[kind], f"only {failed}"


@pytest.mark.parametrize("kind", RACES, ids=lambda kind: kind.__name__)
def test_a_race_is_seen_by_nothing_but_the_tests_of_atomicity(
    failures: dict[str, set[str]], kind: type[broken.Right]
) -> None:
    """So it isn't by some other fault that these sinks are caught."""
    about_races = ("same_time", "lands", "land_once", "threads", "processes")
    for name in failures[f"Test{kind.__name__}"]:
        assert any(word in name for word in about_races), name
