"""The page tells of every race, its table is the measured one, and every race has its tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.acceptance.races.catalogue import ONE_PROCESS, WORKERS, Race, races
from tests.acceptance.races.measure import load
from tests.acceptance.races.scenarios import ALONE, TOGETHER
from tests.acceptance.races.table import PAGE, written

ROOT = Path(__file__).parents[3]
GUARANTEES = PAGE.with_name("guarantees.md")
PARTS = ("Without protection.", "Here.", "Rests on", "Where our job ends.", "Shown by")


def test_there_are_enough_of_them_and_no_name_twice() -> None:
    slugs = [race.slug for race in races()]
    titles = [race.title for race in races()]
    assert len(slugs) >= 25
    assert len(set(slugs)) == len(set(titles)) == len(slugs)


def test_celery_alone_is_measured_or_it_is_said_why_not() -> None:
    measured, planned = load(), {**TOGETHER, **ALONE}
    for race in races():
        assert (race.slug in planned) is (race.why_not_plain is None), race.slug
    assert {race: set(ways) for race, (ways, _) in planned.items()} == {
        race: set(ways) for race, ways in measured.items()
    }


def test_the_table_is_what_was_measured() -> None:
    page = PAGE.read_text("utf-8")
    assert page == written(page, load()), "run `python -m tests.acceptance.races.table`"


@pytest.mark.parametrize("race", list(races()), ids=lambda race: race.slug)
def test_a_race_has_its_section(race: Race) -> None:
    section = sections()[race.title]
    for part in PARTS:
        assert f"**{part}" in section, f"{race.title}: {part!r} is missing"
    shown_by = section.partition("**Shown by")[2]
    assert set(re.findall(r"`(tests/[\w/.]+::\w+)`", shown_by)) == set(race.tests)
    if race.why_not_plain:
        assert race.why_not_plain in " ".join(section.split())


def test_what_the_page_rests_on_is_there() -> None:
    named = set(re.findall(r"\b[AP]\d+\b", PAGE.read_text("utf-8")))
    known = set(re.findall(r"^\| ([AP]\d+) \|", GUARANTEES.read_text("utf-8"), re.MULTILINE))
    assert named <= known


def test_every_race_has_tests_and_every_test_a_race() -> None:
    proving = {test for race in races() for test in race.tests}
    files = [*(ROOT / ONE_PROCESS).glob("test_*.py"), ROOT / WORKERS / "test_workers.py"]
    there = {
        f"{path.relative_to(ROOT).as_posix()}::{function.name}"
        for path in files
        if path.name != Path(__file__).name
        for function in ast.parse(path.read_text("utf-8")).body
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_")
    }
    assert proving <= there
    assert there - proving == ALSO


ALSO = {
    f"{ONE_PROCESS}/test_tasks.py::test_a_task_that_failed_is_done_with_what_a_person_has_decided"
}
"""What is no race."""


def sections() -> dict[str, str]:
    """The text under each heading of a race."""
    _, *rest = re.split(r"^### +(.+)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    found = dict(zip(rest[::2], rest[1::2], strict=True))
    return {title: text.partition("\n## ")[0] for title, text in found.items()}
