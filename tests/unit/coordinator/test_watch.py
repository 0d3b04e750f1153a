from __future__ import annotations

from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from coordinator.watch import Watch
from fencepost.ports import ExecutionStore
from fencepost.records import Checkpoint, CheckpointKind, Event, EventName, Execution, Status
from tests.unit.coordinator.facts import checkpoint, event, execution


class Store:
    """As much of a store as is looked at."""

    def __init__(self, *executions: Execution) -> None:
        self.line = list(executions)
        self.chains: dict[UUID, list[Checkpoint]] = {e.execution_id: [] for e in executions}
        self.trail: list[Event] = []
        self.chains_read = 0

    def lineage(self, _execution_id: UUID) -> list[Execution]:
        return self.line

    def chain(self, execution_id: UUID) -> tuple[Checkpoint, ...]:
        self.chains_read += 1
        return tuple(self.chains[execution_id])

    def events(self, ids: list[UUID], *, after: int = 0) -> list[Event]:
        return [e for e in self.trail if e.execution_id in ids and (e.event_id or 0) > after]

    def commit(self, of: Execution, step: str, at: float) -> None:
        entry = checkpoint(of, CheckpointKind.STEP, step, at=at).entry
        chain = self.chains[of.execution_id]
        chain.append(cast(Checkpoint, replace(cast(Any, entry), seq=len(chain))))
        self.line = [
            replace(e, head_seq=len(chain) - 1) if e.execution_id == of.execution_id else e
            for e in self.line
        ]


def watch(store: Store) -> Watch:
    return Watch(cast(ExecutionStore, store), store.line[0].execution_id)


def test_everything_is_told_once_in_the_order_of_its_time() -> None:
    release, module = execution(), execution("one")
    store = Store(release, module)
    store.commit(module, "prepare", at=2.0)
    store.commit(release, "lock", at=1.0)
    followed = watch(store)
    assert [fact.entry.step for fact in followed.news() if isinstance(fact.entry, Checkpoint)] == [
        "lock",
        "prepare",
    ]
    assert followed.news() == []


def test_a_chain_that_has_not_grown_is_not_read() -> None:
    release = execution()
    store = Store(release)
    store.commit(release, "lock", at=1.0)
    followed = watch(store)
    followed.news()
    followed.news()
    assert store.chains_read == 1


def test_an_event_that_was_committed_late_is_not_missed() -> None:
    release = execution()
    store = Store(release)
    early = cast(Event, event(release, EventName.STARTED).entry)
    late = cast(Event, event(release, EventName.LEASE_ACQUIRED).entry)
    followed = watch(store)
    store.trail = [late]
    assert len(followed.news()) == 1
    store.trail = [early, late]
    (fact,) = followed.news()
    assert fact.entry is early


def test_modules_are_found_by_name_and_attempt() -> None:
    first, second = execution("one", attempt=1), execution("one", attempt=2)
    store = Store(execution(), first, second)
    followed = watch(store)
    followed.news()
    assert followed.module("one", 2) == second
    assert followed.module("other", 1) is None
    assert len(followed.attempts()) == 1


def test_a_parked_module_stops_a_release_once_nothing_else_is_active() -> None:
    waiting, parked = execution(status=Status.WAITING), execution("one", status=Status.PARKED)
    active = execution("two")
    store = Store(waiting, parked, active)
    followed = watch(store)
    followed.news()
    assert followed.waiting_for_a_person() == []
    store.line[2] = replace(active, status=Status.SUCCEEDED)
    followed.news()
    assert followed.waiting_for_a_person() == [parked]
