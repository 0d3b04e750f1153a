"""SQLite has one lock for all writers: whoever has nothing to write must not take it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fencepost.stores.sql import SqlExecutionStore
from tests.conformance.support import started

HOLD = timedelta(seconds=2)


@pytest.fixture
def store(sqlite_engine):
    return SqlExecutionStore(sqlite_engine)


def test_a_reaper_that_finds_nothing_waits_for_no_writer(store, sqlite_engine):
    worker = started(store)
    worker.fan_out(2)
    ended = started(store)
    ended.finish()
    with sqlite_engine.begin():
        # Each would wait for ten seconds, and then fail.
        assert store.claim_due(10, HOLD) == []
        assert store.claim_waiting(10, HOLD) == []
        assert store.claim([ended.execution_id], HOLD) == []
