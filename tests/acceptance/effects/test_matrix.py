"""Effect kind by crash point by fault, on real workers: the sink's own count.

It is 1 for every kind; where a kind can't make it so (at most once, lost between the intent and
the confirmation), the execution is parked with the truth on record, and a person's decision ends
it with 1. It is never 2.

The table is printed at the end of the session; `EFFECTS_MATRIX=runs/effects-matrix.json` keeps it.
"""

from __future__ import annotations

import itertools

import pytest

from fencepost import EffectKind, Status
from tests.acceptance.effects.cells import Cell, Loss, Point

CELLS = [Cell(*parts) for parts in itertools.product(EffectKind, Point, Loss)]

# The first test of a database runs its whole matrix.
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.reference)
def test_the_sink_has_it_once(results, database, cell):
    result = results(database)[cell]
    assert result.count == 1, result.story
    assert result.first in ((0, 1) if cell.parks else (1,)), result.story
    assert result.status is Status.SUCCEEDED, result.story
    assert result.parked is cell.parks, result.story
    if cell.parks:
        # What is on record: announced once, and not known to have landed. The sink knows better.
        assert result.record == ("intent", 1)
        assert result.first == (1 if cell.point is Point.LANDED else 0)
    assert result.paid == (result.payment,), result.story
    refused_at = cell.refuses_at(database)
    if refused_at is not None:
        assert result.zombie[0] == refused_at, result.story
    assert result.violations == ()
