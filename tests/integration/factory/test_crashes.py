"""A worker that is frozen, or dies, at the worst point of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost import faults
from fencepost.records import EventName, Status
from ledger import artifacts, locks, promotions
from ledger.models import ArtifactStatus
from ledger.publishing import PublishStore
from ledger.staging import StagingStore
from tests.integration.factory.fleet import Fleet, example

PAYMENT = "payment-engine"


class KilledError(BaseException):
    """The end of a worker."""


@pytest.fixture(autouse=True)
def _no_faults_left() -> Iterator[None]:
    yield
    faults.install(None)


def once_at(point: str, act: Callable[[], None], **wanted: Any) -> None:
    """Have something happen the first time that a point is reached with these facts."""

    def hook(reached: str, facts: dict[str, Any]) -> None:
        if reached == point and wanted.items() <= facts.items():
            faults.install(None)
            act()

    faults.install(hook)


def die() -> None:
    raise KilledError


def test_a_zombie_that_wakes_after_its_archive_is_refused_and_cleans_up(fleet: Fleet) -> None:
    release_id = fleet.start(example())
    files: dict[str, list[str]] = {}

    def frozen_while_another_takes_over() -> None:
        files["frozen"] = fleet.staged(PAYMENT)
        fleet.expire_leases()
        payment = fleet.module(release_id, PAYMENT)
        assert fleet.engine.run(payment.execution_id).status is Status.SUCCEEDED
        files["taken over"] = fleet.staged(PAYMENT)

    once_at("stage.archive-written", frozen_while_another_takes_over, module=PAYMENT, attempt=1)
    while "taken over" not in files:
        fleet.deliver()

    assert files == {
        "frozen": ["payment-engine-3.0.1.e1.tar.gz"],
        "taken over": ["payment-engine-3.0.1.e2.tar.gz"],
    }
    assert fleet.staged(PAYMENT) == ["payment-engine-3.0.1.e2.tar.gz"]
    payment = fleet.module(release_id, PAYMENT)
    with fleet.session() as session:
        rows = artifacts.of_attempt(session, release_id)
    assert [(r.epoch, r.status) for r in rows if r.module == PAYMENT] == [
        (2, ArtifactStatus.STAGED)
    ]
    events = fleet.engine.executions.events([payment.execution_id])
    (refused,) = [e for e in events if e.name == EventName.ZOMBIE_WRITE_REJECTED]
    assert (refused.epoch, refused.sink) == (1, "ledger")
    assert refused.payload_digest is not None

    fleet.drain()
    assert fleet.line(release_id)[-1].status is Status.SUCCEEDED
    assert fleet.nothing_is_orphaned()


def test_a_refused_archive_is_removed_although_its_successor_died_too(fleet: Fleet) -> None:
    release_id = fleet.start(example())
    woken = False

    def frozen_while_another_only_acquires() -> None:
        nonlocal woken
        fleet.expire_leases()
        once_at("step.before", die, step="stage")
        with pytest.raises(KilledError):
            fleet.engine.run(fleet.module(release_id, PAYMENT).execution_id)
        woken = True

    once_at("stage.archive-written", frozen_while_another_only_acquires, module=PAYMENT, attempt=1)
    while not woken:
        fleet.deliver()
    assert fleet.staged(PAYMENT) == []


def test_what_a_killed_worker_left_is_removed_by_its_successor(fleet: Fleet) -> None:
    release_id = fleet.start(example())
    once_at("stage.archive-written", die, module=PAYMENT, attempt=1)
    with pytest.raises(KilledError):
        fleet.drain()
    # After a real SIGKILL no handler has removed the files.
    store = StagingStore()
    folder = f"{release_id}/1/{PAYMENT}"
    left = (f"{folder}/{PAYMENT}-3.0.1.e1.tar.gz", f"{folder}/.{PAYMENT}-3.0.1.e1.tar.gz.0a.part")
    for path in left:
        store.write(path, lambda stream: stream.write(b"half an archive"))

    fleet.expire_leases()
    fleet.engine.run(fleet.module(release_id, PAYMENT).execution_id)
    assert fleet.staged(PAYMENT) == ["payment-engine-3.0.1.e2.tar.gz"]
    fleet.drain()
    assert fleet.line(release_id)[-1].status is Status.SUCCEEDED
    assert fleet.nothing_is_orphaned()


def test_compensation_removes_what_a_killed_worker_left(fleet: Fleet) -> None:
    release_id = fleet.start(example(policy={"max_attempts": 1}))
    path = f"{release_id}/1/auth-service/auth-service-1.4.2.e9.tar.gz"
    StagingStore().write(path, lambda stream: stream.write(b"of a worker that died"))
    fleet.drain()
    assert not list(StagingStore().root.iterdir())


@pytest.mark.parametrize("point", ["promote.published", "transaction.before-commit"])
def test_a_promotion_that_breaks_off_is_repeated_whole(fleet: Fleet, point: str) -> None:
    release_id = fleet.start(example(flags=("--abi-compat=v2",)))
    wanted = {"step": "promote"} if point.startswith("transaction") else {}
    once_at(point, die, **wanted)
    with pytest.raises(KilledError):
        fleet.drain()
    with fleet.session() as session:
        assert promotions.of_release(session, "storefront", "2026.1") == []
        assert len(PublishStore().orphans(session)) == 1

    fleet.expire_leases()
    fleet.dispatch(fleet.line(release_id)[0])
    fleet.drain()
    assert fleet.line(release_id)[0].status is Status.SUCCEEDED
    with fleet.session() as session:
        assert len(promotions.of_release(session, "storefront", "2026.1")) == 3
    assert fleet.nothing_is_orphaned()


def test_a_zombie_promotion_changes_nothing(fleet: Fleet) -> None:
    release_id = fleet.start(example(flags=("--abi-compat=v2",)))
    published: list[list[str]] = []

    def listing() -> list[str]:
        root = PublishStore().root
        return sorted(p.relative_to(root).as_posix() for p in root.rglob("*"))

    def frozen_while_another_takes_over() -> None:
        fleet.expire_leases()
        assert fleet.engine.run(release_id).status is Status.SUCCEEDED
        published.append(listing())

    once_at("promote.published", frozen_while_another_takes_over)
    fleet.drain()
    assert [listing()] == published
    assert fleet.nothing_is_orphaned()


def test_an_undo_that_breaks_off_after_the_file_is_repeated(fleet: Fleet) -> None:
    release_id = fleet.start(example(policy={"max_attempts": 1}))
    once_at("transaction.before-commit", die, step="stage")
    # The first of these is the forward step's own; arm the undo's when that is over.
    with pytest.raises(KilledError):
        fleet.drain()
    fleet.expire_leases()
    for child in fleet.engine.executions.children(release_id, "stage_modules", 1):
        if not child.status.ended:
            fleet.dispatch(child)
    compensating = False

    def hook(point: str, facts: dict[str, Any]) -> None:
        nonlocal compensating
        if point == "step.before" and facts["step"] == "stage" and facts["kind"] == "undo":
            compensating = True
        if compensating and point == "transaction.before-commit":
            faults.install(None)
            raise KilledError

    faults.install(hook)
    with pytest.raises(KilledError):
        fleet.drain()
    assert len(fleet.staged_files()) == 2  # one file is gone, its row still says STAGED
    fleet.expire_leases()
    for child in fleet.engine.executions.children(release_id, "stage_modules", 1):
        if not child.status.ended:
            fleet.dispatch(child)
    fleet.drain()
    with fleet.session() as session:
        rows = artifacts.of_attempt(session, release_id)
        assert [row.status for row in rows] == [ArtifactStatus.COMPENSATED] * 3
        assert locks.holder(session, "storefront") is None
    assert fleet.staged_files() == []
