"""The command line of schedule exploration."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from fencepost.errors import PayloadError
from fencepost.testing.explore import jobs
from fencepost.testing.explore.budget import Budget
from fencepost.testing.explore.exploring import replay, told
from fencepost.testing.explore.jobs import Done
from fencepost.testing.explore.scenario import Scenario

BETWEEN_LINES = 15.0
"""Seconds between two lines of progress of random schedules."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns 0 if nothing is broken, 1 if something is, 2 for a wrong call."""
    asked = _parser().parse_args(arguments)
    sys.path.insert(0, str(Path.cwd()))
    try:
        module, scenarios = jobs.find(asked.target)
        budget = None if asked.budget is None else Budget.parse(asked.budget)
    except PayloadError as problem:
        print(problem.message, file=sys.stderr)
        return 2
    if asked.replay is not None:
        return _replay(scenarios, budget, asked.replay)
    began = time.monotonic()
    if asked.random is None:
        todo = jobs.exhaustive(module, scenarios, budget=budget, seconds=asked.seconds)
        schedules, broken = _tell_each(jobs.run(todo, asked.processes))
    else:
        seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
        print(f"{asked.random:,} random schedules, from seed {seed} on", flush=True)
        chunks = jobs.at_random(
            module,
            scenarios,
            seed=seed,
            schedules=asked.random,
            budget=budget,
            seconds=asked.seconds,
        )
        schedules, broken = _tell_sums(jobs.run(list(chunks), asked.processes))
    seconds = time.monotonic() - began
    end = f"{broken} BROKEN" if broken else "nothing broken"
    of = "1 scenario" if len(scenarios) == 1 else f"{len(scenarios)} scenarios"
    print(f"{schedules:,} schedules of {of} in {seconds:.0f} s: {end}")
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m fencepost.testing.explore",
        description="Explore the schedules of a module's scenarios.",
    )
    parser.add_argument("target", help="MODULE for all of its scenarios, MODULE:NAME for one")
    parser.add_argument(
        "--budget", metavar="PREEMPTIONS,FAULTS[:KIND+KIND]", help="instead of their own"
    )
    parser.add_argument("--replay", metavar="0,0,3", help="play one schedule, and tell of it")
    parser.add_argument("--random", type=int, metavar="N", help="N schedules at random, in all")
    parser.add_argument("--seed", type=int, help="of the first random schedule")
    parser.add_argument("--seconds", type=float, help="after which each scenario stops")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser.add_argument("--processes", type=int, default=cores)
    return parser


def _replay(scenarios: list[Scenario], budget: Budget | None, record: str) -> int:
    if len(scenarios) != 1:
        print("name one scenario: MODULE:NAME", file=sys.stderr)
        return 2
    try:
        choices = [int(choice) for choice in record.split(",") if choice]
    except ValueError:
        print(f"a schedule is numbers with commas, like 0,0,3, not {record!r}", file=sys.stderr)
        return 2
    [scenario] = scenarios
    run = replay(scenario, choices, budget or scenario.budgets[0])
    print(told(scenario, run))
    return 1 if run.broken else 0


def _tell_each(results: Iterable[Done]) -> tuple[int, int]:
    """A line for each scenario and its bounds, when it is done."""
    schedules = broken = 0
    for done in results:
        schedules, broken = schedules + done.schedules, broken + (done.story is not None)
        how = "BROKEN" if done.story else "all" if done.complete else "cut short"
        print(_line(done.job.name, str(done.job.budget), done.schedules, done.seconds, how))
        if done.story is not None:
            print(done.story)
        sys.stdout.flush()
    return schedules, broken


def _tell_sums(results: Iterable[Done]) -> tuple[int, int]:
    """How far it has come, and then a line for each scenario."""
    told_at = time.monotonic()
    sums: dict[str, tuple[int, float]] = {}
    stories = []
    for done in results:
        schedules, seconds = sums.get(done.job.name, (0, 0.0))
        sums[done.job.name] = schedules + done.schedules, seconds + done.seconds
        if done.story is not None:
            stories.append(done.story)
            print(done.story, flush=True)
        if time.monotonic() - told_at > BETWEEN_LINES:
            told_at = time.monotonic()
            print(f"  {sum(n for n, _ in sums.values()):,} so far", flush=True)
    for name, (schedules, seconds) in sums.items():
        print(_line(name, "", schedules, seconds, "at random"))
    return sum(n for n, _ in sums.values()), len(stories)


def _line(name: str, budget: str, schedules: int, seconds: float, how: str) -> str:
    bounds, _, kinds = budget.partition(":")
    some = " (some faults)" if kinds else ""
    return f"{name:<26} {bounds:>4} {schedules:>8,} schedules {seconds:>7.1f} s  {how}{some}"
