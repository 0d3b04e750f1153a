"""The pipeline: a day is loaded by one execution, and continued as the next day's."""

from __future__ import annotations

from datetime import timedelta

from examples.data_pipeline.model import (
    Cursor,
    Day,
    Partition,
    Sample,
    day_over,
    more_pages,
    partitions_of,
    samples_of,
)
from examples.data_pipeline.steps import (
    close_partition,
    fetch_page,
    list_partitions,
    open_partition,
    publish,
    recount,
    summarise,
    tomorrow,
)
from fencepost import Collect, Quorum, Saga

MOST_PAGES = 500
PARTITIONS_AT_ONCE = 6

one_page = Saga("one-page", input=Cursor).then(fetch_page)
load_partition = (
    Saga("load-partition", input=Partition, deadline=timedelta(hours=2))
    .then(open_partition)
    .loop("pages", one_page, again=more_pages, max_visits=MOST_PAGES)
    .then(close_partition)
)

check_sample = Saga("check-sample", input=Sample).then(recount)

load_day = (
    Saga("load-day", input=Day)
    .until("day-over", day_over)
    .then(list_partitions)
    .map(
        load_partition,
        over=partitions_of,
        name="load",
        join=Collect(),
        max_concurrency=PARTITIONS_AT_ONCE,
        max_items=10_000,
    )
    .then(summarise)
    .map(check_sample, over=samples_of, name="check", join=Quorum(2), max_items=3)
    .then(publish)
    .continue_as_new(tomorrow)
)
