"""A seed is a plan, and a plan leaves no kind of action out."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.chaos.actions import ACTIONS
from tests.chaos.plan import KINDS, OPENING, Planned, plan
from tests.chaos.workload import works

SLOTS = ("w1", "w2", "w3")
DECK = sum(kind.weight for kind in KINDS)


def first(seed: int, count: int, database: str = "postgres") -> list[Planned]:
    return list(islice(plan(seed, database, SLOTS), count))


def test_a_seed_is_a_plan() -> None:
    assert first(7, 300) == first(7, 300)
    assert first(7, 300) != first(8, 300)


def test_a_seed_is_a_workload() -> None:
    assert list(islice(works(7), 100)) == list(islice(works(7), 100))
    assert list(islice(works(7), 100)) != list(islice(works(8), 100))


@pytest.mark.parametrize("seed", range(5))
def test_a_deck_has_every_kind_as_often_as_its_weight(seed: int) -> None:
    drawn = [planned.kind for planned in first(seed, len(OPENING) + DECK)][len(OPENING) :]
    assert {kind.name: drawn.count(kind.name) for kind in KINDS} == {
        kind.name: kind.weight for kind in KINDS
    }


@pytest.mark.parametrize("seed", range(5))
def test_it_opens_with_zombies(seed: int) -> None:
    opening = first(seed, len(OPENING))
    assert [planned.kind for planned in opening] == list(OPENING)
    assert {planned.target for planned in opening} == set(SLOTS)


def test_nothing_is_done_to_a_server_that_isnt_there() -> None:
    assert not [p for p in first(1, 300, "sqlite") if "postgres" in f"{p.kind} {p.target}"]


def test_every_kind_can_be_done() -> None:
    assert {kind.name for kind in KINDS} == set(ACTIONS)


def test_answers_are_lost_on_the_way_from_the_database() -> None:
    lost = [planned.target for planned in first(1, 300) if planned.kind == "lose-answers"]
    assert lost
    assert all(target.endswith("-postgres") for target in lost)


def test_time_goes_forward() -> None:
    times = [planned.at for planned in first(1, 300)]
    assert times == sorted(times)
