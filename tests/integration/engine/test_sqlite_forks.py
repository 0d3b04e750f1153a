"""A process that forks while another of its threads writes to SQLite."""

from __future__ import annotations

import os
import signal
import threading

import sqlalchemy as sa

from fencepost.stores.sql import create_engine

FORKS = 25
WRITES = 3
CHILD_TIMEOUT = 8


def test_a_forked_child_can_write_while_its_parent_does(sqlite_url: str) -> None:
    engine = create_engine(sqlite_url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE entries (writer TEXT)"))
    stop = threading.Event()

    def write_on() -> None:
        # With a moment in between: SQLite's waiting writers have no queue.
        while not stop.wait(0.002):
            write(engine, "parent")

    reaper = threading.Thread(target=write_on)
    reaper.start()
    try:
        outcomes = [forked(sqlite_url) for _ in range(FORKS)]
    finally:
        stop.set()
        reaper.join()
    assert outcomes == [0] * FORKS
    with engine.connect() as connection:
        written = connection.scalar(sa.text("SELECT count(*) FROM entries WHERE writer = 'child'"))
    assert written == FORKS * WRITES


def write(engine: sa.Engine, writer: str) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO entries VALUES (:writer)"), {"writer": writer})


def forked(url: str) -> int:
    child = os.fork()
    if child == 0:
        # Nothing of the test runner may run in here, whatever happens.
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(CHILD_TIMEOUT)
            engine = create_engine(url)
            for _ in range(WRITES):
                write(engine, "child")
        except BaseException:  # noqa: BLE001 - becomes the exit code
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
