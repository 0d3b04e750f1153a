"""What a nemesis can do to a site. Each action says what it has done, and undoes it later."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Generator
from typing import Any

import psutil
import psycopg
import redis

from tests.chaos.fleet import Slot
from tests.chaos.network import State
from tests.chaos.plan import Planned
from tests.chaos.site import Site

Doing = Generator[str, None, str]
"""Does something and says what; asked again, undoes it and says how."""

Action = Callable[[Site, Planned], Doing]

STEPS = (-3600.0, -5.0, 5.0, 3600.0)
ENDING = ("kill-group", "kill-parent", "terminate")
ROLLING_PATIENCE = 20.0
QUEUE = "celery"
PRIORITY = b"\x06\x16"
"""What kombu puts between a queue's name and a priority."""


class NotNow(Exception):
    """The target isn't there to be hurt."""


# -- workers ---------------------------------------------------------------------------------


def _slot(site: Site, planned: Planned) -> Slot:
    slot = site.supervisor.slots[planned.target]
    if not slot.up:
        raise NotNow(f"{slot.name} isn't up")
    if planned.kind in ENDING and sum(each.up for each in site.supervisor.slots.values()) < 2:
        raise NotNow(f"{slot.name} is the last that is up")
    return slot


def _victims(slot: Slot, kind: str, draw: float) -> list[psutil.Process]:
    """The processes of a worker that an action is about: all, a child, or the main one."""
    assert slot.worker is not None
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(slot.worker.pid)
        if kind.endswith("group"):
            return [parent, *parent.children(recursive=True)]
        if kind.endswith("parent"):
            return [parent]
        children = parent.children()
        if children:
            return [children[int(draw * len(children))]]
    raise NotNow(f"{slot.name} has no such process")


def _signal(victims: list[psutil.Process], number: signal.Signals) -> str:
    reached = []
    for victim in victims:
        with contextlib.suppress(psutil.Error):
            victim.send_signal(number)
            reached.append(str(victim.pid))
    return f"{number.name} to {' '.join(reached) or 'nobody'}"


def kill(site: Site, planned: Planned) -> Doing:
    yield _signal(_victims(_slot(site, planned), planned.kind, planned.draw), signal.SIGKILL)
    return ""


def freeze(site: Site, planned: Planned) -> Doing:
    victims = _victims(_slot(site, planned), planned.kind, planned.draw)
    yield _signal(victims, signal.SIGSTOP)
    return _signal(victims, signal.SIGCONT)


def terminate(site: Site, planned: Planned) -> Doing:
    worker = _slot(site, planned).worker
    assert worker is not None
    worker.terminate()
    yield f"SIGTERM to {worker.name}"
    return ""


def step_clock(site: Site, planned: Planned) -> Doing:
    step = STEPS[int(planned.draw * len(STEPS))]
    clock = site.clock(planned.target)
    clock.write_text(str(step))
    yield f"{step:+g} s"
    clock.unlink(missing_ok=True)
    return "set right"


def rolling_restart(site: Site, _planned: Planned) -> Doing:
    yield "begun"
    done = []
    for slot in site.supervisor.slots.values():
        leaving, give_up = slot.worker, time.monotonic() + ROLLING_PATIENCE
        if leaving is None or not slot.up or site.calm.is_set():
            continue
        leaving.terminate()
        while time.monotonic() < give_up and (slot.worker is leaving or not slot.up):
            if site.calm.wait(0.2):
                break
        done.append(slot.name)
    return f"restarted {' '.join(done)}"


# -- links -----------------------------------------------------------------------------------


def cut(site: Site, planned: Planned) -> Doing:
    site.network.set(planned.target, State.CUT)
    yield "cut"
    site.network.set(planned.target, State.OPEN)
    return "open"


def silence(site: Site, planned: Planned) -> Doing:
    site.network.set(planned.target, State.SILENT)
    yield "silent"
    site.network.set(planned.target, State.OPEN)
    return "open"


def lose_answers(site: Site, planned: Planned) -> Doing:
    before = site.network.lose(planned.target, 1 + int(planned.draw * 3))
    yield "armed"
    return f"{site.network.lose(planned.target, 0) - before} answers lost"


# -- Redis -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _redis(site: Site) -> Generator[Any, None, None]:
    client: Any = site.redis()
    try:
        yield client
    except redis.RedisError as problem:
        raise NotNow(f"Redis: {problem}") from problem
    finally:
        client.close()


def flush(site: Site, _planned: Planned) -> Doing:
    with _redis(site) as client:
        keys = client.dbsize()
        client.flushall()
    yield f"{keys} keys gone"
    return ""


def kill_redis(site: Site, _planned: Planned) -> Doing:
    site.redis_server.kill()
    yield "killed"
    site.redis_server.start()
    return "up and empty"


def kill_clients(site: Site, _planned: Planned) -> Doing:
    with _redis(site) as client:
        count = client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    yield f"{count} connections closed"
    return ""


def demote(site: Site, _planned: Planned) -> Doing:
    with _redis(site) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
    yield "a replica of nobody that answers"
    with _redis(site) as client:
        client.execute_command("REPLICAOF", "NO", "ONE")
    return "a primary again"


def fill_memory(site: Site, _planned: Planned) -> Doing:
    with _redis(site) as client:
        client.config_set("maxmemory", "1mb")
    yield "out of memory"
    with _redis(site) as client:
        client.config_set("maxmemory", "0")
    return "has memory again"


# -- databases -------------------------------------------------------------------------------


@contextlib.contextmanager
def _postgres(site: Site) -> Generator[psycopg.Connection[Any], None, None]:
    try:
        with site.connect() as connection:
            yield connection
    except psycopg.Error as problem:
        raise NotNow(f"PostgreSQL: {str(problem).strip()}") from problem


def restart_postgres(site: Site, _planned: Planned) -> Doing:
    assert site.postgres is not None
    site.postgres.kill()
    yield "killed"
    site.postgres.start()
    return "up"


def end_sessions(site: Site, _planned: Planned) -> Doing:
    query = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    with _postgres(site) as connection:
        row = connection.execute(query).fetchone()
    yield f"{row[0] if row else 0} sessions ended"
    return ""


def hold_lock(site: Site, planned: Planned) -> Doing:
    if site.postgres is None:
        return (yield from _hold_sqlite(site))
    table = planned.draw < 0.5
    lock = (
        "LOCK TABLE fencepost_executions IN EXCLUSIVE MODE"
        if table
        else "SELECT 1 FROM fencepost_executions WHERE ended_at IS NULL FOR UPDATE"
    )
    with _postgres(site) as connection:
        connection.execute("SET lock_timeout = 2000")
        with connection.transaction(force_rollback=True):
            found = connection.execute(lock.encode())
            yield "the table" if table else f"{found.rowcount} rows"
    return "let go"


def _hold_sqlite(site: Site) -> Doing:
    path = site.database_url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as problem:
            raise NotNow(str(problem)) from problem
        yield "the database"
        database.execute("ROLLBACK")
    return "let go"


def fill_disk(site: Site, _planned: Planned) -> Doing:
    if site.disk is None:
        raise NotNow("there is no small disk: that needs root on Linux")
    yield f"{site.disk.fill()} bytes filled"
    site.disk.clear()
    return "room again"


# -- messages --------------------------------------------------------------------------------


def _queues(client: Any) -> list[bytes]:
    """The lists of all priorities, and nothing of the results."""
    lists = client.scan_iter(f"{QUEUE}*", _type="list")
    return [key for key in lists if key == QUEUE.encode() or PRIORITY in key]


def _take(client: Any, draw: float) -> list[tuple[bytes, bytes]]:
    """Take some or all messages out of the queues."""
    taken = []
    for queue in _queues(client):
        for _ in range(1 + int(draw * 10)):
            message = client.rpop(queue)
            if message is None:
                break
            taken.append((queue, message))
    return taken


def double(site: Site, planned: Planned) -> Doing:
    copies = 1 + int(planned.draw * 3)
    with _redis(site) as client:
        doubled = 0
        for queue in _queues(client):
            for message in client.lrange(queue, 0, 9):
                client.lpush(queue, *[message] * copies)
                doubled += 1
        # Those that somebody works on, too: as after a visibility timeout that is too short.
        for packed in list(client.hvals("unacked"))[:10]:
            doubled += _restore(client, packed, copies)
    yield f"{doubled} messages, {copies} copies each"
    return ""


def _restore(client: Any, packed: bytes, copies: int) -> int:
    message, _exchange, _routing_key = json.loads(packed)
    client.lpush(QUEUE, *[json.dumps(message)] * copies)
    return 1


def delay(site: Site, planned: Planned) -> Doing:
    with _redis(site) as client:
        taken = _take(client, planned.draw)
    yield f"{len(taken)} messages held back"
    with _redis(site) as client:
        for queue, message in taken:
            client.lpush(queue, message)
    return "delivered"


def shuffle(site: Site, planned: Planned) -> Doing:
    with _redis(site) as client:
        taken = _take(client, 1.0)
        random.Random(planned.draw).shuffle(taken)
        for queue, message in taken:
            client.lpush(queue, message)
    yield f"{len(taken)} messages in another order"
    return ""


def drop(site: Site, planned: Planned) -> Doing:
    with _redis(site) as client:
        taken = _take(client, planned.draw)
    yield f"{len(taken)} messages lost"
    return ""


def forget_unacked(site: Site, _planned: Planned) -> Doing:
    with _redis(site) as client:
        count = client.hlen("unacked")
        client.delete("unacked", "unacked_index")
    yield f"{count} forgotten"
    return ""


ACTIONS: dict[str, Action] = {
    "kill-group": kill,
    "kill-child": kill,
    "kill-parent": kill,
    "freeze-group": freeze,
    "freeze-child": freeze,
    "freeze-parent": freeze,
    "terminate": terminate,
    "step-clock": step_clock,
    "cut": cut,
    "silence": silence,
    "lose-answers": lose_answers,
    "rolling-restart": rolling_restart,
    "flush": flush,
    "kill-redis": kill_redis,
    "kill-clients": kill_clients,
    "demote": demote,
    "fill-memory": fill_memory,
    "restart-postgres": restart_postgres,
    "end-sessions": end_sessions,
    "hold-lock": hold_lock,
    "fill-disk": fill_disk,
    "double": double,
    "delay": delay,
    "shuffle": shuffle,
    "drop": drop,
    "forget-unacked": forget_unacked,
}
