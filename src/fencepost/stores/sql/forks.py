"""SQLite and fork: no connection is open at the moment at which a process forks.

SQLite keeps which files its process has locked in the process's own memory. A child that is
forked while another thread holds a lock inherits that memory, but not the lock: to the child's
own connections the database then stays locked for ever (https://sqlite.org/howtocorrupt.html,
"Carrying an open database connection across a fork"). A prefork worker whose main process reaps
would otherwise, now and then, replace a lost pool child by one that can't write.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import QueuePool

PATIENCE = 5.0
"""Seconds that a fork waits for connections in use. A thread that forks in the middle of its own
transaction would wait for itself."""

POLL = 0.001

_engines: weakref.WeakSet[sa.Engine] = weakref.WeakSet()
# Held while the process forks; every new use of a connection passes through it.
_gate = threading.Lock()


def guard(engine: sa.Engine) -> None:
    """Close the engine's connections before each fork, and let none be used during it."""
    _engines.add(engine)

    @event.listens_for(engine, "do_connect")
    def before_connecting(*_: Any) -> None:
        _pass_the_gate()

    @event.listens_for(engine, "checkout")
    def before_use(*_: Any) -> None:
        _pass_the_gate()


def _pass_the_gate() -> None:
    with _gate:
        pass


def _before_fork() -> None:
    _gate.acquire()
    give_up = time.monotonic() + PATIENCE
    for engine in list(_engines):
        while _in_use(engine) and time.monotonic() < give_up:
            time.sleep(POLL)
        engine.dispose()


def _in_use(engine: sa.Engine) -> bool:
    return isinstance(engine.pool, QueuePool) and engine.pool.checkedout() > 0


os.register_at_fork(
    before=_before_fork, after_in_parent=_gate.release, after_in_child=_gate.release
)
