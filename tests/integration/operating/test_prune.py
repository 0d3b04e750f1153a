"""Deleting runs that have ended: whole families, or nothing of them."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
import sqlalchemy as sa

from fencepost import Status
from fencepost.errors import PayloadError
from fencepost.records import EventName
from fencepost.stores.sql import pruning
from fencepost.stores.sql.pruning import EVERYTHING, TABLES
from fencepost.stores.sql.schema import executions
from tests.integration.operating.office import (
    DONE,
    LONG_AGO,
    TROUBLE,
    WHO,
    Order,
    asked,
    is_sound,
    orders,
    rounds,
    told,
    whole,
)
from tests.support.inline import Inline


@pytest.fixture(autouse=True)
def more_sagas(fleet):
    fleet.engine.registry.add(rounds)


def ago(fleet: Inline, execution_id: UUID, days: int) -> None:
    """Have a run ended so long ago."""
    root = fleet.row(execution_id).root_id
    with fleet.database.begin() as connection:
        for row in connection.execute(
            sa.select(executions).where(executions.c.root_id == root)
        ).all():
            if row.ended_at is not None:
                connection.execute(
                    sa.update(executions)
                    .where(executions.c.execution_id == row.execution_id)
                    .values(ended_at=row.ended_at - timedelta(days=days))
                )


def rows(fleet: Inline) -> dict[str, int]:
    with fleet.database.connect() as connection:
        return {
            name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for name, table in TABLES.items()
        }


def test_a_run_goes_with_all_that_is_known_of_it(fleet, office):
    old = fleet.run(whole, Order(number=2))
    signalled = fleet.run(told, Order(number=1))
    office.signal(signalled, "reading", {"value": 1})
    office.signal(signalled, "reading", {"value": 2})
    paid = fleet.run(orders, Order(number=3))
    fleet.drain()
    for execution_id in (old, signalled, paid):
        ago(fleet, execution_id, 31)
    counted = office.prune(LONG_AGO, dry_run=True, **WHO)
    before = rows(fleet)
    pruned = office.prune(LONG_AGO, **WHO)
    assert (pruned.runs, pruned.executions) == (3, 5)
    assert pruned.counts == counted.counts
    assert {name: pruned.counts[name] for name in TABLES} == before
    assert rows(fleet) == {name: int(name == "events") for name in TABLES}
    (event,) = fleet.store.events([EVERYTHING])
    assert event.name == EventName.PRUNED
    assert (event.details["by"], event.details["runs"]) == ("ada", 3)
    assert event.details["why"] == WHO["why"]


def test_what_is_younger_stays(fleet, office):
    old, young = (fleet.run(orders, Order(number=number)) for number in (1, 2))
    ago(fleet, old, 31)
    ago(fleet, young, 29)
    assert office.prune(LONG_AGO, **WHO).runs == 1
    assert fleet.store.get(old) is None
    assert fleet.row(young).status is Status.SUCCEEDED
    assert fleet.store.chain(young)


def test_a_family_stays_whole_while_one_of_it_is_live_or_parked(fleet, office):
    TROUBLE["gather"] = "ask"
    family = fleet.run(whole, Order(number=2))
    waiting = fleet.run(asked, Order(number=1))
    line = fleet.run(rounds, Order(number=2))
    for execution_id in (family, waiting, line):
        ago(fleet, execution_id, 99)
    assert fleet.row(family).status is Status.PARKED
    assert fleet.row(line).status is Status.CONTINUED
    assert office.prune(LONG_AGO, **WHO).runs == 0
    assert len(fleet.store.lineage(family)) == 3
    assert fleet.store.events([EVERYTHING]) == []


def test_a_family_stays_while_one_of_it_has_ended_lately(fleet, office):
    family = fleet.run(whole, Order(number=2))
    ago(fleet, family, 99)
    child = fleet.store.children(family, "pieces", 1)[0]
    with fleet.database.begin() as connection:
        connection.execute(
            sa.update(executions)
            .where(executions.c.execution_id == child.execution_id)
            .values(ended_at=child.ended_at + timedelta(days=80))
        )
    assert office.prune(LONG_AGO, **WHO).runs == 0


def test_an_effect_in_doubt_keeps_its_run(fleet, office):
    execution_id = fleet.run(orders, Order(number=1))
    ago(fleet, execution_id, 99)
    with fleet.database.begin() as connection:
        connection.exec_driver_sql("UPDATE fencepost_effects SET status = 'in-doubt'")
    assert office.prune(LONG_AGO, **WHO).runs == 0


def test_only_runs_that_ended_so(fleet, office):
    well = fleet.run(orders, Order(number=1))
    TROUBLE["ship"] = "fail"
    undone = fleet.run(orders, Order(number=2))
    for execution_id in (well, undone):
        ago(fleet, execution_id, 31)
    assert office.prune(LONG_AGO, statuses=[Status.SUCCEEDED], **WHO).runs == 1
    assert fleet.row(undone).status is Status.COMPENSATED
    with pytest.raises(PayloadError, match="a run ends as one of"):
        office.prune(LONG_AGO, statuses=[Status.PARKED], **WHO)
    with pytest.raises(PayloadError, match="negative"):
        office.prune(-LONG_AGO, **WHO)


def test_a_key_is_free_again(fleet, office):
    first = fleet.run(orders, Order(number=1), key="a")
    ago(fleet, first, 31)
    office.prune(LONG_AGO, **WHO)
    again = fleet.run(orders, Order(number=2), key="a")
    assert again == first
    assert [one for one in DONE if one.startswith("paid")] == ["paid 1", "paid 2"]
    assert is_sound(fleet)


def test_many_go_in_transactions_of_a_few(fleet, office, monkeypatch):
    monkeypatch.setattr(pruning, "PAGE", 3)
    monkeypatch.setattr(pruning, "AT_ONCE", 4)
    for number in range(5):
        ago(fleet, fleet.run(orders, Order(number=number)), 31)
    ago(fleet, fleet.run(whole, Order(number=5)), 31)
    told_of = []
    pruned = office.prune(
        LONG_AGO, progress=lambda done: told_of.append((done.runs, done.executions)), **WHO
    )
    assert (pruned.runs, pruned.executions) == (6, 11)
    assert told_of[-1] == (6, 11)
    steps = [runs for runs, _ in told_of]
    assert len(steps) > 2
    assert steps == sorted(steps)
    (event,) = fleet.store.events([EVERYTHING])
    assert event.details["executions"] == 11


def test_what_is_deleted_before_an_interruption_is_on_record(fleet, office, monkeypatch):
    monkeypatch.setattr(pruning, "AT_ONCE", 1)
    for number in range(3):
        ago(fleet, fleet.run(orders, Order(number=number)), 31)

    class Interrupted(Exception):
        pass

    def stop(done):
        if done.runs == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        office.prune(LONG_AGO, progress=stop, **WHO)
    (event,) = fleet.store.events([EVERYTHING])
    assert event.details["runs"] == 2
    assert office.prune(LONG_AGO, **WHO).runs == 1


def test_what_is_reopened_at_the_same_time_stays(fleet, office):
    TROUBLE["look"] = "fail"
    execution_id = fleet.run(whole, Order(number=1))
    assert fleet.row(execution_id).status is Status.FAILED
    ago(fleet, execution_id, 31)
    prune = pruning._Pruning(
        fleet.store,
        fleet.row(execution_id).ended_at + timedelta(days=1),
        pruning.PRUNABLE,
        "ada",
        "x",
        dry_run=False,
    )
    (batch,) = prune.batches()
    office.retry(execution_id, **WHO)
    prune.take(batch)
    assert prune.done.runs == 0
    assert fleet.row(execution_id).status is Status.ACTIVE


def test_a_run_that_somebody_else_has_locked_is_left_for_the_next_time(postgres_url, office, fleet):
    if not fleet.store.postgresql:
        return  # there one writer is alone with everything
    execution_id = fleet.run(orders, Order(number=1))
    ago(fleet, execution_id, 31)
    with fleet.store.writing() as connection:
        connection.execute(
            sa.select(executions.c.execution_id)
            .where(executions.c.execution_id == execution_id)
            .with_for_update()
        )
        assert office.prune(LONG_AGO, **WHO).runs == 0
    assert office.prune(LONG_AGO, **WHO).runs == 1
