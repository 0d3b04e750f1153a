"""The two contestants on one Celery app: `celery -A benchmarks.app worker`.

Both get three functions that do nothing but pass a number on, so that what is measured is the
machinery. Environment: `BENCH_REDIS_URL`, and Fencepost's own `FENCEPOST_DATABASE_URL`.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, chain

import fencepost
from fencepost import Saga, step

redis_url = os.environ["BENCH_REDIS_URL"]
app = Celery("bench", broker=redis_url, backend=redis_url)


@step
def one(value: int) -> int:
    """The saga's first step."""
    return value + 1


@step
def two(value: int) -> int:
    """The second step."""
    return value + 1


@step
def three(value: int) -> int:
    """The last step."""
    return value + 1


saga = Saga("bench", input=int).then(one).then(two).then(three)
fp = fencepost.install(app, sagas=[saga])


@app.task(ignore_result=True)
def plain_one(value: int) -> int:
    """The first link of the chain."""
    return value + 1


@app.task(ignore_result=True)
def plain_two(value: int) -> int:
    """The second link."""
    return value + 1


@app.task(ignore_result=False)
def plain_three(value: int) -> int:
    """The last link: its result is kept, or nobody would know that the chain has ended."""
    return value + 1


def publish_chain(value: int) -> str:
    """Start plain Celery's chain; returns the id of its last task."""
    links: Any = chain(plain_one.s(value), plain_two.s(), plain_three.s())
    return str(links.apply_async().id)
