"""Each guard of the protocol is missed when it is gone, and the list of them is current."""

from __future__ import annotations

import pytest

from tests.exploration.guards import PAGE, killed, page
from tests.exploration.mutants import MUTANTS, REDUNDANT, SUBJECTS
from tests.exploration.mutants.model import KNOWN, Mutant, kill
from tests.exploration.removing import Cut, without

# Explored until a rule falls: seconds, more on a busy machine.
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_exploration_misses_the_guard(mutant: Mutant) -> None:
    found = killed(mutant)
    assert found is not None, f"{mutant.guard}: no rule falls in {mutant.scenarios}"
    assert found.rules


@pytest.mark.parametrize("mutant", REDUNDANT, ids=str)
def test_what_is_called_redundant_is_not_missed(mutant: Mutant) -> None:
    assert kill(mutant) is None


def test_guards_have_names_of_their_own_and_scenarios_that_exist() -> None:
    guards = [mutant.guard for mutant in (*MUTANTS, *REDUNDANT)]
    assert len(set(guards)) == len(guards)
    assert {name for mutant in MUTANTS for name in mutant.scenarios} <= set(KNOWN)
    assert all(SUBJECTS.values())


def test_the_list_of_guards_in_the_documentation_is_current() -> None:
    again = "run: python -m tests.exploration.guards"
    assert PAGE.read_text("utf-8") == page(), again


def test_a_guard_that_has_moved_is_noticed() -> None:
    moved = Cut("fencepost.engine.run:Run._park_if_poisonous", "if nothing_like_this:", "")
    with pytest.raises(LookupError, match="0 times"), without([moved]):
        pass


def test_a_guard_is_put_back() -> None:
    from fencepost.engine.run import Run

    before = Run._park_if_poisonous
    cut = Cut("fencepost.engine.run:Run._park_if_poisonous", "if recoveries > limit:", "if False:")
    with without([cut]):
        assert Run._park_if_poisonous is not before
    assert Run._park_if_poisonous is before
