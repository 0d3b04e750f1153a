"""Processes that are frozen inside of a store's transaction, after each of its statements.

`python -m tests.integration.freezing.victims URL IDLE FOLDER [OPERATION ...]`: each victim leaves
a file `<operation>-<statement>.json` with its pid, its execution and the time, and stops itself.
The process that has made them says how many there are, and ends them when its input is closed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from fencepost.effects import EffectKind, EffectStatus
from fencepost.effects.model import EffectIntent
from fencepost.limits import Limit
from fencepost.records import Event, EventName, Status
from fencepost.stores.sql import (
    SqlEffectStore,
    SqlExecutionStore,
    SqlLimitStore,
    create_engine,
)
from tests.conformance.support import (
    LATER,
    NOW,
    Worker,
    eventually,
    new_execution,
    new_owner,
    signal_for,
    started,
)

Act = Callable[[], Any]
LIMIT = Limit(name="tills", concurrency=1_000)


OPERATIONS = ("acquire", "transaction", "intend", "take")


class Stores:
    """Of one process."""

    def __init__(self, url: str, idle: float) -> None:
        self.database = create_engine(url, idle_in_transaction=timedelta(seconds=idle))
        self.executions = SqlExecutionStore(self.database)
        self.effects = SqlEffectStore(self.executions)
        self.limits = SqlLimitStore(self.executions)

    def intent(self, worker: Worker, kind: EffectKind = EffectKind.IDEMPOTENT) -> EffectIntent:
        """An intent of a key that nobody else has."""
        token = worker.token()
        return EffectIntent(
            token=token,
            sink="pay",
            key=f"{token.step_key}:pay:1",
            effect="pay",
            kind=kind,
            resource=str(worker.execution_id),
            request={"cents": 1},
            request_digest="digest",
        )

    def transactional(self, worker: Worker) -> None:
        """A transactional step with an effect."""
        with self.executions.transaction(worker.token()) as transaction:
            intent = self.intent(worker, EffectKind.TRANSACTIONAL)
            with self.effects.in_session(transaction.session, intent) as known:
                assert known is None
                self.effects.confirm_in_session(transaction.session, intent, {"paid": 1})
            transaction.commit(worker.extension())

    def parked(self, worker: Worker) -> UUID:
        """Its execution, parked."""
        self.executions.park(worker.token(), "who knows", None)
        return worker.execution_id

    def signalled(self, worker: Worker) -> UUID:
        """A signal that was sent to it."""
        sent, _ = self.executions.send_signal(signal_for(worker.execution_id))
        return sent.signal_id


def acts(stores: Stores, worker: Worker) -> dict[str, Callable[[], Act]]:
    """What prepares each operation; it returns the operation itself."""
    store, effects, limits = stores.executions, stores.effects, stores.limits
    me, token = worker.execution_id, worker.token()

    def after(prepare: Callable[[], Any], act: Act) -> Callable[[], Act]:
        def prepared() -> Act:
            prepare()
            return act

        return prepared

    def rejecting() -> Act:
        signal_id = stores.signalled(worker)
        return lambda: store.reject_signal(signal_id, "no")

    failed = {"code": "gate.failed", "message": "no"}
    event = Event(execution_id=me, name=EventName.FENCE_RAISED, epoch=worker.epoch)
    people: dict[str, str] = {"by": "ann", "why": "because"}
    head = worker.head
    return {
        "acquire": lambda: lambda: store.acquire(me, new_owner(), worker.epoch + 1, LATER),
        "commit": lambda: lambda: worker.fan_out(2, cap=1),
        "compensate": after(worker.commit, lambda: worker.compensate(tells=failed)),
        "finish": lambda: worker.finish,
        "transaction": lambda: lambda: stores.transactional(worker),
        "record_attempt": lambda: lambda: store.record_attempt(token, 1, failed, NOW),
        "hand_back": lambda: lambda: store.hand_back(token, NOW),
        "park": lambda: lambda: store.park(token, "who knows", None),
        "unpark": after(lambda: stores.parked(worker), lambda: store.unpark(me, "known")),
        "turn_back": lambda: lambda: store.turn_back(me, failed, EventName.CANCELLED, {}),
        "pause": lambda: lambda: store.pause(me, **people),
        "resume": after(lambda: store.pause(me, **people), lambda: store.resume(me, **people)),
        "reopen": after(
            lambda: worker.finish(Status.FAILED, error=failed),
            lambda: store.reopen(me, **people),
        ),
        "send_signal": after(
            lambda: worker.waits(waits_for="approved"),
            lambda: store.send_signal(signal_for(me)),
        ),
        "reject_signal": rejecting,
        "record": lambda: lambda: store.record(event),
        "admit": after(lambda: worker.fan_out(2, cap=1), lambda: store.admit(me, NOW)),
        "claim_due": after(
            lambda: store.hand_back(token, NOW), lambda: store.claim_due(1000, LATER)
        ),
        "defer": lambda: lambda: store.defer(me, worker.epoch, NOW),
        "create": lambda: lambda: store.create(new_execution()),
        "intend": lambda: lambda: effects.intend(stores.intent(worker)),
        "conclude": after(
            lambda: effects.intend(stores.intent(worker)),
            lambda: effects.conclude(
                token, "pay", stores.intent(worker).key, EffectStatus.CONFIRMED, result=1
            ),
        ),
        "take": lambda: lambda: limits.take(me, str(me), LIMIT, head=head, attempt=0),
        "serve": after(
            lambda: limits.take(me, str(me), LIMIT, head=head, attempt=0),
            lambda: limits.serve(str(me), LIMIT),
        ),
    }


def run(url: str, idle: float, operation: str, at: Callable[[UUID, int], None]) -> None:
    """Carry an operation out; `at` hears of each statement in a transaction."""
    stores = Stores(url, idle)
    worker = started(stores.executions)
    act = acts(stores, worker)[operation]()
    count = 0

    def executed(connection: sa.Connection, *_: Any) -> None:
        nonlocal count
        raw: Any = connection.connection.dbapi_connection
        if connection.dialect.name == "sqlite" or raw.info.transaction_status != 0:
            count += 1
            at(worker.execution_id, count)

    sa.event.listen(stores.database, "after_cursor_execute", executed)
    act()


def counted(url: str, idle: float, operation: str) -> int:
    """How many statements an operation has in a transaction, on a subject of its own."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        _ending(lambda: run(url, idle, operation, lambda _, n: _write(writing, n)))
    os.close(writing)
    with os.fdopen(reading) as answers:
        numbers = answers.read().split()
    _, status = os.wait()
    if status:
        raise SystemExit(f"{operation} can't be counted")
    return int(numbers[-1]) if numbers else 0


def victim(url: str, idle: float, folder: Path, operation: str, statement: int) -> int:
    """Fork one that is frozen after a statement; its pid."""

    def freeze(execution_id: UUID, number: int) -> None:
        if number != statement:
            return
        path = folder / f"{operation}-{statement}.json"
        partial = path.with_suffix(".partial")
        facts = {"pid": os.getpid(), "execution_id": str(execution_id), "at": time.time()}
        partial.write_text(json.dumps(facts))
        partial.rename(path)
        os.kill(os.getpid(), signal.SIGSTOP)

    pid = os.fork()
    if pid == 0:
        _ending(lambda: run(url, idle, operation, freeze))
    return pid


def _write(pipe: int, number: int) -> None:
    os.write(pipe, f"{number}\n".encode())


def _ending(act: Callable[[], None]) -> None:
    """Do it in a forked process, which ends with it."""
    code = 1
    try:
        act()
        code = 0
    except Exception:  # noqa: BLE001 - the process ends here, so it is said here
        traceback.print_exc()
    finally:
        os._exit(code)


def main(url: str, idle: str, folder: str, *operations: str) -> None:
    """Make the victims; of `one:<operation>` only one, after its second statement."""
    if operations and operations[0].startswith("one:"):
        victim(url, float(idle), Path(folder), operations[0].removeprefix("one:"), 2)
        sys.stdin.read()
        return
    cases = [
        (operation, statement + 1)
        for operation in operations or OPERATIONS
        for statement in range(counted(url, float(idle), operation))
    ]
    print(len(cases), flush=True)
    pids = []
    for operation, statement in cases:
        # One after the other: no transaction shall stand idle for want of a processor.
        pids.append(victim(url, float(idle), Path(folder), operation, statement))
        eventually((Path(folder) / f"{operation}-{statement}.json").exists, seconds=30.0)
    sys.stdin.read()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
