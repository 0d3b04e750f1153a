"""The steps of a day's load."""

from __future__ import annotations

import os
from datetime import timedelta

from examples.data_pipeline import sources, warehouse
from examples.data_pipeline.model import (
    Batch,
    Cursor,
    Day,
    Failed,
    Loaded,
    Partition,
    Results,
    Sample,
    Summary,
    Verdict,
    source_of,
)
from examples.data_pipeline.sources import SourceBusy
from fencepost import Limit, RetryPolicy, StepContext, TransactionalContext, step

SOURCE = Limit(name="source", concurrency=2, key=source_of)
"""Each source is asked by two workers at a time at most, across the fleet."""

PATIENT = RetryPolicy(
    attempts=5,
    first_delay=timedelta(seconds=0.2),
    retry_on=(SourceBusy, ConnectionError, TimeoutError),
)


@step
def list_partitions(day: Day) -> Batch:
    """What there is to be loaded. The list is recorded: what comes later is another day's."""
    return Batch(partitions=sources.partitions(day.day))


@step
def open_partition(partition: Partition) -> Cursor:
    """Begin with the first page."""
    return Cursor(partition=partition)


@step(transactional=True)
def discard_page(ctx: TransactionalContext, cursor: Cursor) -> None:
    """Forget a page: the partition could not be loaded as a whole."""
    # The n-th visit of `fetch_page` has kept page n-1, and is undone under the same visit.
    warehouse.discard(ctx.session, cursor.partition, ctx.visit - 1)


@step(transactional=True, compensate=discard_page, limit=SOURCE, retry=PATIENT)
def fetch_page(ctx: TransactionalContext, cursor: Cursor) -> Cursor:
    """Fetch a page and keep it; gives how far the partition is loaded then."""
    # The transaction begins at the first statement: nothing is locked while the source answers.
    rows, following = sources.fetch(cursor)
    warehouse.write(ctx.session, cursor.partition, cursor.page or 0, rows)
    return cursor.model_copy(update={"page": following, "rows": cursor.rows + len(rows)})


@step
def close_partition(cursor: Cursor) -> Loaded:
    """All pages are there."""
    return Loaded(partition=cursor.partition, rows=cursor.rows)


@step
def summarise(ctx: StepContext, results: Results) -> Summary:
    """Sort out what is loaded and what isn't."""
    loaded = [one.value for one in results if one.value is not None]
    failed = [Failed(why=one.error.message) for one in results if one.error is not None]
    return Summary(day=ctx.input_as(Day).day, loaded=loaded, failed=failed)


class NotThere(Exception):
    """The warehouse has other rows than were loaded."""


class CheckerDown(Exception):
    """A checker doesn't answer. `PIPELINE_DOWN` names one that never does."""


@step(transactional=True)
def recount(ctx: TransactionalContext, sample: Sample) -> Verdict:
    """Count what is in the warehouse, and compare it with what was loaded."""
    if sample.checker == os.environ.get("PIPELINE_DOWN"):
        raise CheckerDown(f"{sample.checker} doesn't answer")
    wanted = sum(one.rows for one in sample.partitions)
    rows = sum(warehouse.count(ctx.session, one.partition) for one in sample.partitions)
    if rows != wanted:
        raise NotThere(f"{sample.checker}: {rows} rows instead of {wanted}")
    return Verdict(checker=sample.checker, rows=rows)


@step(transactional=True)
def publish(ctx: TransactionalContext, _verdicts: list[Verdict]) -> Day:
    """Let readers see the day."""
    summary = ctx.result_of(summarise)
    warehouse.publish(ctx.session, summary.day, summary.rows, len(summary.failed))
    return ctx.input_as(Day)


@step
def tomorrow(day: Day) -> Day:
    """The next execution's input."""
    return day.next
