"""The column of Celery alone is measured: here again, and compared with what is on record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.races.bank import Banks
from tests.acceptance.races.measure import Results, load, measure


@pytest.mark.timeout(300)
def test_celery_alone_still_does_what_is_on_record(folder: Path, banks: Banks) -> None:
    assert verdicts(measure(folder, banks)) == verdicts(load())


def verdicts(results: Results) -> dict[tuple[str, str], tuple[int, bool]]:
    """How many payments are right, and whether something is amiss; how much differs by luck."""
    return {
        (race, way): (count.right, count.wrong)
        for race, ways in results.items()
        for way, count in ways.items()
    }
