"""The verifier against an engine whose fence has been taken away: it has to notice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from fencepost import Status
from fencepost.stores.sql import statements
from fencepost.stores.sql.schema import executions
from fencepost.verify import verify
from tests.integration.verify.story import Order, release
from tests.support.inline import Inline


@pytest.fixture
def fleet(sqlite_url: str) -> Iterator[Inline]:
    fleet = Inline(sqlite_url, [release])
    yield fleet
    fleet.close()


@pytest.fixture
def unfenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every owner that ever was may write."""

    def anybody() -> sa.ColumnElement[bool]:
        return sa.and_(
            executions.c.execution_id == sa.bindparam("held_execution_id", type_=sa.Uuid),
            executions.c.epoch >= sa.bindparam("held_epoch", type_=sa.BigInteger),
            sa.func.length(sa.bindparam("held_owner", type_=sa.String)) > 0,
        )

    monkeypatch.setattr(statements, "_fenced", anybody)
    monkeypatch.setattr(statements, "ADVANCE", statements._advance())


def run_beside_a_zombie(fleet: Inline) -> list[str]:
    """A worker is frozen, another takes over and is killed; then the first one wakes up."""
    root = fleet.start(release, Order(count=1))

    def takeover() -> None:
        fleet.expire_leases()
        with fleet.killed_at("step.before", step="label"):
            fleet.deliver(root)

    with fleet.meanwhile("step.after", takeover, step="label"):
        fleet.drain()
    fleet.drain()
    assert fleet.row(root).status is Status.SUCCEEDED
    report = verify(str(fleet.database.url), run=root)
    return sorted({f"{v.invariant} {v.code}" for v in report.violations})


def test_with_the_fence_nothing_is_violated(fleet):
    assert run_beside_a_zombie(fleet) == []


def test_without_it_the_zombies_checkpoints_are_found(fleet, unfenced):
    assert run_beside_a_zombie(fleet) == ["4 stale.checkpoint"]
