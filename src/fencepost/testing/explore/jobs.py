"""Exploring in several processes: what one of them is given, and what comes of it."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from fencepost.errors import PayloadError
from fencepost.testing.explore.budget import Budget
from fencepost.testing.explore.exploring import Explored, explore, told, walk
from fencepost.testing.explore.scenario import Scenario

CHUNK = 250
"""Random schedules that a process runs at a time."""


@dataclass(frozen=True)
class Job:
    """What one process does at a time; all of it can be pickled.

    Attributes:
        module: Where the scenario is.
        name: Of the scenario.
        budget: Its bounds.
        seed: Of the first random schedule; None for all schedules.
        schedules: How many random ones.
        seconds: After which it stops.
    """

    module: str
    name: str
    budget: Budget
    seed: int | None = None
    schedules: int = 0
    seconds: float | None = None


@dataclass(frozen=True)
class Done:
    """What came of a job.

    Attributes:
        complete: Whether nothing within the bounds is left out.
        story: The first failure in words, with the command that plays it again; None if there is
            none.
    """

    job: Job
    schedules: int
    seconds: float
    complete: bool
    story: str | None


def find(target: str) -> tuple[str, list[Scenario]]:
    """The module and the scenarios that `MODULE` or `MODULE:NAME` names.

    Raises:
        PayloadError: It names none.
    """
    name, _, wanted = target.partition(":")
    try:
        module = importlib.import_module(name)
    except ImportError as problem:
        raise PayloadError(f"there is no module {name!r} here: {problem}") from problem
    scenarios = _scenarios_of(module)
    if wanted:
        scenarios = [scenario for scenario in scenarios if str(scenario) == wanted]
    if not scenarios:
        raise PayloadError(f"{target!r} names no scenario: use MODULE or MODULE:NAME")
    return name, scenarios


def _scenarios_of(module: object) -> list[Scenario]:
    listed = getattr(module, "SCENARIOS", None)
    if listed is not None:
        return list(listed)
    values = vars(module).values()
    made = [value for value in values if isinstance(value, Scenario)]
    classes = [
        value
        for value in values
        if isinstance(value, type)
        and issubclass(value, Scenario)
        and value is not Scenario
        and value.__module__ == getattr(module, "__name__", None)
    ]
    return [*made, *(each() for each in classes)]


def exhaustive(
    module: str,
    scenarios: Sequence[Scenario],
    *,
    budget: Budget | None = None,
    seconds: float | None = None,
) -> list[Job]:
    """All schedules of some scenarios, within their own bounds or within `budget`."""
    return [
        Job(module, str(scenario), each, seconds=seconds)
        for scenario in scenarios
        for each in ([budget] if budget else scenario.budgets)
    ]


def at_random(
    module: str,
    scenarios: Sequence[Scenario],
    *,
    seed: int,
    schedules: int,
    budget: Budget | None = None,
    seconds: float | None = None,
) -> Iterator[Job]:
    """Random schedules, shared out among scenarios."""
    for first in range(0, schedules, CHUNK * len(scenarios)):
        for number, scenario in enumerate(scenarios):
            left = min(CHUNK, schedules - first - number * CHUNK)
            if left > 0:
                at = seed + first // len(scenarios)
                bounds = budget or scenario.walks
                yield Job(module, str(scenario), bounds, at, left, seconds)


def run(jobs: Sequence[Job], processes: int) -> Generator[Done, None, None]:
    """Do jobs side by side, and tell of each when it is done.

    Random schedules end with the first failure; nobody needs a second one.
    """
    if processes <= 1 or len(jobs) <= 1:
        for job in jobs:
            done = do(job)
            yield done
            if job.seed is not None and done.story is not None:
                return
        return
    # A new interpreter for each process: a fork would inherit threads that the caller may have.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent) as pool:
        try:
            for future in as_completed([pool.submit(do, job) for job in jobs]):
                done = future.result()
                yield done
                if done.job.seed is not None and done.story is not None:
                    return
        finally:
            # Also where whoever asked wants no more of it.
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Whatever ends whoever asked, nobody goes on exploring for them."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="fencepost-explore-parent", daemon=True).start()


def do(job: Job) -> Done:
    """Do one job in this process."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    _, [scenario] = find(f"{job.module}:{job.name}")
    if job.seed is None:
        found = explore(scenario, job.budget, seconds=job.seconds)
    else:
        found = walk(
            scenario, job.budget, seed=job.seed, schedules=job.schedules, seconds=job.seconds
        )
    return Done(job, found.schedules, found.seconds, found.complete, _story(job, scenario, found))


def _story(job: Job, scenario: Scenario, found: Explored) -> str | None:
    if found.failure is None:
        return None
    record = ",".join(map(str, found.failure.record)) or "0"
    again = (
        f"python -m fencepost.testing.explore {job.module}:{job.name}"
        f" --budget {job.budget} --replay {record}"
    )
    seed = "" if job.seed is None else f"\n  found by seed {job.seed + found.schedules - 1}, shrunk"
    return f"{told(scenario, found.failure)}{seed}\n  again: {again}"
