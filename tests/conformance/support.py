"""What the suites share: waiting on a store's state, threads that start together, builders."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

from fencepost import identity, serde
from fencepost.fence import FenceToken
from fencepost.ports import ExecutionStore
from fencepost.records import (
    Acquired,
    Checkpoint,
    CheckpointKind,
    Commit,
    Event,
    EventName,
    Execution,
    NewExecution,
    NewSignal,
    Phase,
    Status,
)

T = TypeVar("T")

LATER = timedelta(hours=1)
NOW = timedelta(0)

_owners = itertools.count(1)


def milliseconds(number: float) -> timedelta:
    return timedelta(milliseconds=number)


def eventually(probe: Callable[[], T], *, seconds: float = 10.0) -> T:
    """The first truthy answer of a store that is asked again and again, for a bounded time."""
    give_up = time.monotonic() + seconds
    while not (answer := probe()):
        assert time.monotonic() < give_up, f"still {answer!r} after {seconds} s"
        time.sleep(0.002)
    return answer


def at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Make all calls in threads that start together; their answers or errors, in order."""
    barrier = threading.Barrier(len(calls))

    def start(call: Callable[[], Any]) -> Any:
        barrier.wait(timeout=30)
        try:
            return call()
        except Exception as problem:  # noqa: BLE001 - it is the call's answer
            return problem

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(start, calls))


def new_owner() -> str:
    return f"owner-{next(_owners)}"


def new_execution(value: Any = None, **fields: Any) -> NewExecution:
    """A root execution of its own, unless the fields say otherwise."""
    value = {"order": 1} if value is None else value
    execution_id = fields.pop("execution_id", None) or uuid4()
    return NewExecution(
        execution_id=execution_id,
        saga=fields.pop("saga", "release"),
        version="v1",
        input=value,
        input_digest=serde.digest(value),
        lineage_id=fields.pop("lineage_id", execution_id),
        root_id=fields.pop("root_id", execution_id),
        **fields,
    )


def keyed(key: str, value: Any) -> NewExecution:
    execution_id = identity.keyed_execution_id("release", key)
    return new_execution(value, execution_id=execution_id, business_key=key)


def child_of(
    parent: Execution, index: int, *, status: Status = Status.ACTIVE, visit: int = 1
) -> NewExecution:
    """A child of one of the parent's visits to `modules`."""
    return new_execution(
        {"module": index},
        execution_id=identity.child_id(parent.execution_id, "modules", visit, index),
        saga="module",
        root_id=parent.root_id,
        parent_id=parent.execution_id,
        parent_step="modules",
        parent_visit=visit,
        child_index=index,
        status=status,
    )


def next_of_line(execution: Execution) -> NewExecution:
    """What continues an execution as new."""
    return new_execution(
        {"again": True},
        execution_id=identity.continuation_id(execution.execution_id),
        saga=execution.saga,
        lineage_id=execution.lineage_id,
        root_id=execution.root_id,
        parent_id=execution.parent_id,
        parent_step=execution.parent_step,
        parent_visit=execution.parent_visit,
        child_index=execution.child_index,
    )


FAILURE = {"failure": {"code": "release.gate-failed"}, "branch": None}


@dataclass
class Worker:
    """An owner of one execution, and its view of the chain."""

    store: ExecutionStore
    execution_id: UUID
    owner: str
    epoch: int
    head: UUID
    seq: int

    @classmethod
    def take(cls, store: ExecutionStore, execution_id: UUID) -> Worker:
        """Acquire with the epoch after the stored one."""
        before = store.get(execution_id)
        assert before is not None
        owner = new_owner()
        acquired = store.acquire(execution_id, owner, before.epoch + 1, LATER)
        assert isinstance(acquired, Acquired), acquired
        now = acquired.execution
        return cls(store, execution_id, owner, now.epoch, now.head, now.head_seq)

    def token(self, step: str = "stage", visit: int = 1) -> FenceToken:
        key = identity.step_key(self.execution_id, step, visit)
        return FenceToken(self.execution_id, self.epoch, self.owner, key)

    def extension(
        self,
        step: str = "stage",
        result: Any = None,
        *,
        kind: CheckpointKind = CheckpointKind.STEP,
        due_in: timedelta = LATER,
        visit: int = 1,
        **fields: Any,
    ) -> Commit:
        """The next commit of this worker; not committed yet."""
        return Commit(
            checkpoint_id=uuid4(),
            token=self.token(step, visit),
            parent=self.head,
            seq=self.seq + 1,
            kind=kind,
            step=step,
            visit=visit,
            attempt=1,
            result=result,
            due_in=due_in,
            **fields,
        )

    def commit(self, step: str = "stage", result: Any = None, **fields: Any) -> Checkpoint:
        return self.landed(self.store.commit(self.extension(step, result, **fields)))

    def landed(self, entry: Checkpoint) -> Checkpoint:
        """Go on from a checkpoint."""
        self.head, self.seq = entry.checkpoint_id, entry.seq
        return entry

    def finish(self, status: Status = Status.SUCCEEDED, **fields: Any) -> Checkpoint:
        return self.commit(f"ends-{status}", {"done": True}, status=status, **fields)

    def fan_out(
        self,
        count: int,
        *,
        cap: int | None = None,
        due_in: timedelta = LATER,
        visit: int = 1,
        **fields: Any,
    ) -> list[NewExecution]:
        """Fan out over `modules`; the first `cap` children may start at once."""
        me = self.execution
        placed = count if cap is None else cap
        children = [
            child_of(
                me,
                index,
                status=Status.ACTIVE if index < placed else Status.QUEUED,
                visit=visit,
            )
            for index in range(count)
        ]
        self.commit(
            "modules",
            kind=CheckpointKind.FAN_OUT,
            status=Status.WAITING,
            children=tuple(children),
            max_concurrency=cap,
            due_in=due_in,
            visit=visit,
            **fields,
        )
        return children

    def wait(self, step: str = "approval", *, visit: int = 1, **fields: Any) -> Commit:
        """The commit with which this worker begins to wait; not committed yet."""
        return self.extension(
            step,
            kind=CheckpointKind.WAIT,
            status=Status.WAITING,
            due_in=NOW,
            visit=visit,
            **fields,
        )

    def waits(self, step: str = "approval", **fields: Any) -> Checkpoint:
        """Begin to wait for a time or a signal."""
        return self.landed(self.store.commit(self.wait(step, **fields)))

    def stop(self, *, tells: Any = None, cap: int | None = None, visit: int = 1) -> Checkpoint:
        """Tell the live children of `modules` to stop, and wait for them."""
        return self.commit(
            "modules",
            kind=CheckpointKind.STOP,
            status=Status.WAITING,
            stop_children_of=("modules", visit),
            tells=tells,
            max_concurrency=cap,
            due_in=NOW,
            visit=visit,
        )

    def compensate(self, *, visit: int = 1, tells: Any = None) -> Checkpoint:
        """Enter compensation: epochs are raised, this worker stays the owner."""
        entry = self.commit(
            "gate",
            FAILURE,
            kind=CheckpointKind.COMPENSATING,
            phase=Phase.COMPENSATING,
            raise_epochs=True,
            visit=visit,
            tells=tells,
        )
        self.epoch += 1
        return entry

    def undo_fan_out(self, *, cap: int | None = None, due_in: timedelta = LATER) -> Checkpoint:
        """Let the children of `modules` undo their work, and wait."""
        return self.commit(
            "modules",
            kind=CheckpointKind.UNDO_FAN_OUT,
            phase=Phase.COMPENSATING,
            status=Status.WAITING,
            undo_children_of=("modules", 1),
            max_concurrency=cap,
            due_in=due_in,
        )

    @property
    def execution(self) -> Execution:
        found = self.store.get(self.execution_id)
        assert found is not None
        return found


def started(store: ExecutionStore, new: NewExecution | None = None) -> Worker:
    """A new execution and its first owner."""
    execution, _ = store.create(new or new_execution())
    return Worker.take(store, execution.execution_id)


def names(store: ExecutionStore, execution_id: UUID) -> list[str]:
    """The audit trail's names."""
    return [event.name for event in store.events([execution_id])]


def signal_for(execution_id: UUID, name: str = "approved", **fields: Any) -> NewSignal:
    return NewSignal(
        signal_id=uuid4(),
        execution_id=execution_id,
        name=name,
        payload=fields.pop("payload", {"yes": True}),
        **fields,
    )


def acquirable(store: ExecutionStore, execution_id: UUID) -> bool:
    """Whether a new owner is accepted; it then is the owner."""
    before = store.get(execution_id)
    assert before is not None
    answer = store.acquire(execution_id, new_owner(), before.epoch + 1, LATER)
    return isinstance(answer, Acquired)


def run_child(store: ExecutionStore, child: Execution, status: Status = Status.SUCCEEDED) -> None:
    """A child from its first owner to its end."""
    worker = Worker.take(store, child.execution_id)
    worker.commit("prepare", {"of": child.child_index})
    worker.finish(status, outcome={"of": child.child_index})


def recorded_epochs(store: ExecutionStore, execution_id: UUID) -> list[int]:
    """The epochs that the audit trail accounts for."""
    begins = (EventName.LEASE_ACQUIRED, EventName.EPOCH_RAISED)
    return [event.epoch for event in store.events([execution_id]) if event.name in begins]


def on_record(store: ExecutionStore, execution_id: UUID, name: EventName) -> Event:
    """The one event of that name."""
    (found,) = [event for event in store.events([execution_id]) if event.name == name]
    return found
