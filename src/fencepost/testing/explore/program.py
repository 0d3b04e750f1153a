"""The command line of schedule exploration."""

from __future__ import annotations

import argparse
import importlib
import os
import secrets
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fencepost.errors import PayloadError
from fencepost.testing.explore.budget import Budget
from fencepost.testing.explore.exploring import Explored, explore, replay, told, walk
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
        story: The first failure in words; None if there is none.
    """

    job: Job
    schedules: int
    seconds: float
    complete: bool
    story: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns 0 if nothing is broken, 1 if something is, 2 for a wrong call."""
    asked = _parser().parse_args(arguments)
    sys.path.insert(0, str(Path.cwd()))
    try:
        module, scenarios = _find(asked.target)
        budget = None if asked.budget is None else Budget.parse(asked.budget)
    except PayloadError as problem:
        print(problem, file=sys.stderr)
        return 2
    if asked.replay is not None:
        return _replay(scenarios, budget, asked.replay)
    jobs = list(_jobs(module, scenarios, budget, asked))
    began = time.monotonic()
    results = _run(jobs, asked.processes)
    broken = _report(results, random=asked.random is not None)
    total = sum(done.schedules for done in results)
    print(f"{total:,} schedules of {len(scenarios)} scenarios in {time.monotonic() - began:.0f} s")
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m fencepost.testing.explore", description=__doc__)
    parser.add_argument("target", help="MODULE for all of its scenarios, MODULE:NAME for one")
    parser.add_argument("--budget", metavar="PREEMPTIONS,FAULTS", help="instead of their own")
    parser.add_argument("--replay", metavar="0,0,3", help="play one schedule, and tell of it")
    parser.add_argument("--random", type=int, metavar="N", help="N schedules at random, in all")
    parser.add_argument("--seed", type=int, help="of the first random schedule")
    parser.add_argument("--seconds", type=float, help="after which each scenario stops")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser.add_argument("--processes", type=int, default=cores)
    return parser


def _find(target: str) -> tuple[str, list[Scenario]]:
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


def _replay(scenarios: list[Scenario], budget: Budget | None, record: str) -> int:
    if len(scenarios) != 1:
        print("name one scenario: MODULE:NAME", file=sys.stderr)
        return 2
    [scenario] = scenarios
    choices = [int(choice) for choice in record.split(",") if choice]
    run = replay(scenario, choices, budget or scenario.budgets[0])
    print(told(scenario, run))
    return 1 if run.broken else 0


def _jobs(
    module: str, scenarios: list[Scenario], budget: Budget | None, asked: argparse.Namespace
) -> Iterator[Job]:
    if asked.random is None:
        for scenario in scenarios:
            for each in [budget] if budget else scenario.budgets:
                yield Job(module, str(scenario), each, seconds=asked.seconds)
        return
    seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    for first in range(0, asked.random, CHUNK * len(scenarios)):
        for number, scenario in enumerate(scenarios):
            left = min(CHUNK, asked.random - first - number * CHUNK)
            if left > 0:
                at = seed + first // len(scenarios)
                walks = budget or scenario.walks
                yield Job(module, str(scenario), walks, at, left, asked.seconds)


def _run(jobs: list[Job], processes: int) -> list[Done]:
    if processes <= 1 or len(jobs) <= 1:
        return [_do(job) for job in jobs]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(_do, jobs))


def _do(job: Job) -> Done:
    sys.path.insert(0, str(Path.cwd()))
    _, [scenario] = _find(f"{job.module}:{job.name}")
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
    return f"{told(scenario, found.failure)}\n  again: {again}"


def _report(results: Iterable[Done], *, random: bool) -> bool:
    """A line for each scenario and its bounds; whether anything is broken."""
    together: dict[tuple[str, str], list[Done]] = defaultdict(list)
    for done in results:
        together[done.job.name, str(done.job.budget)].append(done)
    broken = False
    for (name, budget), parts in together.items():
        stories = [done.story for done in parts if done.story is not None]
        complete = all(done.complete for done in parts)
        how = "BROKEN" if stories else "at random" if random else "all" if complete else "cut short"
        schedules, seconds = sum(d.schedules for d in parts), sum(d.seconds for d in parts)
        print(f"{name:<26} {budget:>4} {schedules:>8,} schedules {seconds:>7.1f} s  {how}")
        broken = broken or bool(stories)
        for story in stories[:1]:
            print(story)
    return broken
