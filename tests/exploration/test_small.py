"""Every schedule of the named small configurations, within their bounds, breaks no rule.

Alone on two cores this takes two minutes. `make explore` does the same and prints as it goes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from fencepost.testing.explore.jobs import Done, Job, exhaustive, run
from tests.exploration.reporting import LINES
from tests.exploration.scenarios import SCENARIOS

JOBS = exhaustive("tests.exploration.scenarios", SCENARIOS)

# Whoever is first waits for the others: they are done side by side.
pytestmark = pytest.mark.timeout(1500)


class Results:
    """What comes of the jobs, in the order in which they are done."""

    def __init__(self) -> None:
        self._coming = run(JOBS, os.cpu_count() or 1)
        self._began = time.monotonic()
        self.done: dict[Job, Done] = {}
        self.seconds = 0.0

    def end(self) -> None:
        self._coming.close()

    def of(self, job: Job) -> Done:
        while job not in self.done:
            done = next(self._coming)
            self.done[done.job] = done
            self.seconds = time.monotonic() - self._began
        return self.done[job]


@pytest.fixture(scope="module")
def results(pytestconfig: pytest.Config) -> Iterator[Results]:
    found = Results()
    yield found
    found.end()
    lines = pytestconfig.stash.setdefault(LINES, [])
    for job, done in found.done.items():
        lines.append(
            f"{job.name:<26} {job.budget!s:<30} {done.schedules:>8,} {done.seconds:>7.1f} s"
        )
    total = sum(done.schedules for done in found.done.values())
    lines.append(f"{total:,} schedules of {len(SCENARIOS)} scenarios in {found.seconds:.0f} s")


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.name}-{job.budget}")
def test_every_schedule_keeps_the_rules(job: Job, results: Results) -> None:
    done = results.of(job)
    assert done.story is None, done.story
    assert done.complete
    assert done.schedules >= 1
