"""What is noticed while a run goes on: a copy of what is stored is broken between two looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.chaos.facts import Reader, Row, Wanted, wanted
from tests.chaos.history import History
from tests.chaos.watch import Watch

CHARGE = Row("bank-keyed", "order-1/charge", "o:charge:1", 1)


class Stored:
    """What a reader would find."""

    def __init__(self) -> None:
        self.all = [CHARGE]
        self.owners = {"o": (2, 5)}
        self.newest = {"c": ("o:charge:1", 2, "w2")}
        self.stale: list[str] = []

    def rows(self) -> list[Row]:
        return list(self.all)

    def epochs(self) -> dict[str, tuple[int, int]]:
        return dict(self.owners)

    def newest_checkpoints(self) -> dict[str, tuple[str, int, str]]:
        return dict(self.newest)

    def stale_checkpoints(self) -> list[str]:
        return self.stale

    def unsettled(self) -> int:
        return 3


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def watch(stored: Stored) -> Watch:
    return Watch(cast(Reader, stored))


def test_nothing_is_noticed_while_all_goes_forward(watch: Watch, stored: Stored) -> None:
    assert watch.look() == []
    assert watch.open == 3
    stored.owners["o"] = (3, 6)
    stored.newest["d"] = ("o:pack:1", 3, "w3")
    assert watch.look() == []


BROKEN: dict[str, tuple[Callable[[Stored], Any], str]] = {
    "an effect is there twice": (lambda s: s.all.append(CHARGE), "twice"),
    "an owner has come back": (lambda s: s.owners.update(o=(1, 5)), "zombie"),
    "a chain has lost its end": (lambda s: s.owners.update(o=(2, 4)), "shorter"),
    "a checkpoint is of an old epoch": (lambda s: s.stale.append("o:charge:1"), "stale"),
    "a checkpoint has another owner": (
        lambda s: s.newest.update(c=("o:charge:1", 1, "w1")),
        "overwritten",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_it_is_noticed_at_the_next_look(how: str, watch: Watch, stored: Stored) -> None:
    break_it, code = BROKEN[how]
    assert watch.look() == []
    break_it(stored)
    assert {finding.code for finding in watch.look()} == {code}


def test_a_watch_stops_the_run(watch: Watch, stored: Stored) -> None:
    stored.all.append(CHARGE)
    watch.start()
    assert watch.wrong.wait(30)
    watch.stop()
    assert [finding.code for finding in watch.found] == ["twice"]


def test_a_watch_that_fails_says_so(watch: Watch, stored: Stored) -> None:
    stored.owners = cast(Any, None)
    watch.start()
    assert watch.wrong.wait(30)
    watch.stop()
    assert [finding.code for finding in watch.found] == ["watch"]


def test_what_is_wanted_comes_from_the_history() -> None:
    history = History()
    history.add("start", "order", target="order-1", doomed="pack", items=0)
    history.add("start", "release", target="release-2", doomed="", items=3)
    history.add("not-started", "order", target="order-1", answer="no")
    history.add("started", "order", target="order-1", answer="o", attempt=2)
    assert wanted(history.entries()) == {
        "order-1": Wanted("order", "order-1", "pack", 0, "o"),
        "release-2": Wanted("release", "release-2", "", 3, None),
    }
