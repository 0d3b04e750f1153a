"""Retrying, skipping and resolving what is parked, and reopening what has failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from fencepost import Saga, Status
from fencepost.engine.operations import Operations
from fencepost.errors import ExecutionStateError, PayloadError
from fencepost.records import EventName, Phase
from fencepost.stores.sql import SqlEffectStore
from tests.integration.operating.office import (
    DONE,
    TROUBLE,
    WHO,
    Order,
    errand,
    final,
    is_sound,
    orders,
    plain,
    told,
    whole,
)
from tests.support.inline import Inline

# -- retry ---------------------------------------------------------------------------------


def test_what_is_parked_is_tried_again(fleet, office):
    TROUBLE["ship"] = "ask"
    execution_id = fleet.run(orders, Order(number=1))
    TROUBLE.clear()
    assert office.retry(execution_id, by="ada", why="mended").status is Status.ACTIVE
    assert list(fleet.queue) == [execution_id]
    fleet.drain()
    assert fleet.row(execution_id).status is Status.SUCCEEDED
    (event,) = fleet.events(execution_id, EventName.UNPARKED)
    assert (event.details["by"], event.details["why"]) == ("ada", "mended")


def test_what_has_failed_with_nothing_to_undo_goes_on_where_it_failed(fleet, office):
    TROUBLE["look"] = "fail"
    execution_id = fleet.run(plain, Order(number=1))
    assert fleet.row(execution_id).status is Status.FAILED
    TROUBLE.clear()
    office.retry(execution_id, by="ada", why="mended")
    fleet.drain()
    assert fleet.row(execution_id).status is Status.SUCCEEDED
    assert DONE == ["look", "paid 1", "charge"]
    (event,) = fleet.events(execution_id, EventName.REOPENED)
    assert (event.details["by"], event.details["why"]) == ("ada", "mended")
    assert is_sound(fleet)


def test_what_is_undone_is_not_tried_again(fleet, office):
    TROUBLE["ship"] = "fail"
    execution_id = fleet.run(orders, Order(number=1))
    assert fleet.row(execution_id).status is Status.COMPENSATED
    with pytest.raises(ExecutionStateError, match="its work is undone: start anew") as refused:
        office.retry(execution_id, **WHO)
    assert refused.value.fields["next"] == f"fencepost fork {execution_id} --at 0 --why '...'"


def test_a_failed_task_is_forked_instead(fleet, office):
    TROUBLE["second"] = "fail"
    execution_id = fleet.run(errand, Order(number=1))
    with pytest.raises(ExecutionStateError, match="a durable task that has failed") as refused:
        office.retry(execution_id, **WHO)
    assert "fencepost fork" in refused.value.fields["next"]


def test_what_is_under_way_or_well_needs_no_retry(fleet, office):
    execution_id = fleet.start(orders, Order(number=1))
    with pytest.raises(ExecutionStateError, match="it is under way"):
        office.retry(execution_id, **WHO)
    fleet.drain()
    with pytest.raises(ExecutionStateError, match="nothing to be tried again"):
        office.retry(execution_id, **WHO)


def test_a_failed_child_stays_failed_when_its_parent_has_gone_on(fleet, office):
    TROUBLE["reserve"] = "fail"
    root = fleet.run(whole, Order(number=2))
    (child, _) = [e for e in fleet.store.lineage(root) if e.parent_id == root]
    assert child.status is Status.FAILED
    with pytest.raises(ExecutionStateError, match="its parent has gone on"):
        office.retry(child.execution_id, **WHO)


# -- skip ----------------------------------------------------------------------------------


def test_a_skipped_step_counts_as_failed_and_the_rest_is_undone(fleet, office):
    TROUBLE["ship"] = "ask"
    execution_id = fleet.run(orders, Order(number=1))
    skipped = office.skip(execution_id, by="ada", why="it was sent back")
    assert skipped.directive["do"] == "skip"
    assert (skipped.directive["by"], skipped.directive["step"]) == ("ada", "ship")
    fleet.drain()
    row = fleet.row(execution_id)
    assert row.status is Status.COMPENSATED
    assert (row.error["code"], row.error["step"]) == ("execution.needs-person", "ship")
    assert row.directive is None
    assert DONE[-1] == "release"
    (event,) = fleet.events(execution_id, EventName.UNPARKED)
    assert event.details["directive"]["why"] == "it was sent back"
    assert is_sound(fleet)


def test_a_skipped_compensation_counts_as_done(fleet, office):
    TROUBLE.update(ship="fail", release="ask")
    execution_id = fleet.run(orders, Order(number=1))
    assert fleet.row(execution_id).phase is Phase.COMPENSATING
    office.skip(execution_id, by="ada", why="there is nothing to release")
    fleet.drain()
    assert fleet.row(execution_id).status is Status.COMPENSATED
    assert "release" not in DONE
    undo = fleet.store.chain(execution_id)[-1]
    assert undo.result == {"skipped": {"by": "ada", "why": "there is nothing to release"}}
    assert is_sound(fleet)


def test_a_task_is_told_that_a_skipped_step_has_failed(fleet, office):
    TROUBLE["second"] = "ask"
    execution_id = fleet.run(errand, Order(number=1))
    office.skip(execution_id, **WHO)
    fleet.drain()
    row = fleet.row(execution_id)
    assert (row.status, row.error["code"]) == (Status.FAILED, "task.step-failed")


def test_nothing_is_skipped_past_the_pivot(fleet, office):
    TROUBLE["ship"] = "fail"
    execution_id = fleet.run(final, Order(number=1))
    park(fleet, execution_id)
    with pytest.raises(ExecutionStateError, match="after the pivot") as refused:
        office.skip(execution_id, **WHO)
    assert "fencepost resolve" in refused.value.fields["next"]


def park(fleet: Inline, execution_id: UUID) -> None:
    """Come to the end of the attempts that a step past the pivot has."""
    for _ in range(50):
        if fleet.row(execution_id).status is Status.PARKED:
            return
        fleet.dispatch(fleet.row(execution_id))
        fleet.drain()
    raise AssertionError("it is never parked")


def test_a_step_with_an_effect_in_doubt_is_neither_skipped_nor_resolved(fleet, office):
    TROUBLE["pay"] = "doubt"
    execution_id = fleet.run(orders, Order(number=1))
    decisions: tuple[Callable[[], Any], ...] = (
        lambda: office.skip(execution_id, **WHO),
        lambda: office.resolve_step(execution_id, 5, **WHO),
    )
    for decide in decisions:
        with pytest.raises(ExecutionStateError, match="fencepost resolve bank") as refused:
            decide()
        assert refused.value.fields["next"] == f"fencepost effects {execution_id} --in-doubt"
    assert fleet.row(execution_id).status is Status.PARKED


def test_only_what_is_parked_can_be_decided_about(fleet, office):
    execution_id = fleet.start(orders, Order(number=1))
    decisions: tuple[Callable[[], Any], ...] = (
        lambda: office.skip(execution_id, **WHO),
        lambda: office.resolve_step(execution_id, 5, **WHO),
    )
    for decide in decisions:
        with pytest.raises(ExecutionStateError, match="only about the step of a parked one"):
            decide()


def poisoned(fleet: Inline, saga: Saga[Any, Any]) -> UUID:
    """An execution whose step has cost too many workers; what it has on record is the step before.

    Its worker dies at each attempt, so it is parked under the last checkpoint.
    """
    execution_id = fleet.start(saga, Order(number=1))
    while fleet.row(execution_id).status is not Status.PARKED:
        fleet.queue.clear()
        if fleet.row(execution_id).recoveries > fleet.engine.options.max_recoveries - 1:
            fleet.deliver(execution_id)
            continue
        with fleet.killed_at("step.before", step="ship"):
            fleet.deliver(execution_id)
    return execution_id


def test_what_kills_its_workers_can_be_skipped_where_the_saga_is_known(fleet, office):
    execution_id = poisoned(fleet, orders)
    unknowing = Operations(fleet.store, SqlEffectStore(fleet.store))
    with pytest.raises(ExecutionStateError, match="name your app"):
        unknowing.skip(execution_id, **WHO)
    skipped = office.skip(execution_id, **WHO)
    assert skipped.directive["step"] == "ship"
    assert skipped.directive["error"]["code"] == "step.skipped"
    fleet.drain()
    assert fleet.row(execution_id).status is Status.COMPENSATED


# -- resolve -------------------------------------------------------------------------------


def test_a_result_given_by_hand_is_the_steps_result(fleet, office):
    TROUBLE["ship"] = "ask"
    execution_id = fleet.run(orders, Order(number=1))
    office.resolve_step(execution_id, "carried there", by="ada", why="I was there")
    fleet.drain()
    row = fleet.row(execution_id)
    assert (row.status, row.result) == (Status.SUCCEEDED, "carried there, thanks")
    assert "ship" not in DONE
    assert is_sound(fleet)


def test_a_result_past_the_pivot(fleet, office):
    TROUBLE["ship"] = "ask"
    execution_id = fleet.run(final, Order(number=1))
    office.resolve_step(execution_id, "carried there", **WHO)
    fleet.drain()
    assert fleet.row(execution_id).result == "carried there"


def test_a_result_of_a_tasks_step(fleet, office):
    TROUBLE["second"] = "ask"
    execution_id = fleet.run(errand, Order(number=1))
    office.resolve_step(execution_id, 77, **WHO)
    fleet.drain()
    assert fleet.row(execution_id).result == 77


def test_a_compensation_that_was_done_by_hand(fleet, office):
    TROUBLE.update(ship="fail", release="ask")
    execution_id = fleet.run(orders, Order(number=1))
    office.resolve_step(execution_id, by="ada", why="released by telephone")
    fleet.drain()
    assert fleet.row(execution_id).status is Status.COMPENSATED
    assert fleet.store.chain(execution_id)[-1].result["resolved"]["by"] == "ada"


def test_a_result_of_another_type_is_not_written(fleet, office):
    TROUBLE["ship"] = "ask"
    execution_id = fleet.run(orders, Order(number=1))
    with pytest.raises(PayloadError, match="result of step 'ship'"):
        office.resolve_step(execution_id, {"not": "a text"}, **WHO)
    assert fleet.row(execution_id).status is Status.PARKED
    assert fleet.row(execution_id).directive is None


def test_without_the_saga_the_next_owner_says_so(fleet):
    TROUBLE["ship"] = "ask"
    execution_id = fleet.run(orders, Order(number=1))
    unknowing = Operations(fleet.store, SqlEffectStore(fleet.store))
    unknowing.resolve_step(execution_id, {"not": "a text"}, **WHO)
    fleet.drain()
    row = fleet.row(execution_id)
    assert row.status is Status.PARKED
    assert "result that ada has given" in str(row.parked_reason)


def put_aside(fleet: Inline, execution_id: UUID) -> None:
    """Parked as over too many takeovers: under the newest entry of its chain."""
    with fleet.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE fencepost_executions SET status = 'parked', parked_reason = 'x'"
            f" WHERE saga = '{fleet.row(execution_id).saga}'"
        )


def test_a_join_is_resolved_when_its_children_have_ended(fleet, office):
    execution_id = fleet.start(whole, Order(number=2))
    with fleet.killed_at("fan-out.before-publish", step="pieces"):
        fleet.deliver(fleet.queue.popleft())
    put_aside(fleet, execution_id)
    with pytest.raises(ExecutionStateError, match="2 children of 'pieces' have not ended"):
        office.resolve_step(execution_id, [], **WHO)
    with pytest.raises(ExecutionStateError, match="'pieces' is a join, and no step"):
        office.skip(execution_id, **WHO)
    for child in fleet.store.children(execution_id, "pieces", 1):
        fleet.deliver(child.execution_id)
    put_aside(fleet, execution_id)
    with pytest.raises(PayloadError, match="result of step 'pieces'"):
        office.resolve_step(execution_id, ["no order"], **WHO)
    office.resolve_step(execution_id, [{"number": 9}], **WHO)
    fleet.drain()
    assert fleet.row(execution_id).result == 1


def test_an_execution_that_has_nothing_parked_but_a_wait_is_told_to_get_its_signal(fleet, office):
    execution_id = fleet.run(told, Order(number=1))
    put_aside(fleet, execution_id)
    with pytest.raises(ExecutionStateError, match="'reading' is a wait: send what it waits for"):
        office.resolve_step(execution_id, 1, **WHO)
    with pytest.raises(ExecutionStateError, match="is a wait, and no step: retry, or cancel"):
        office.skip(execution_id, **WHO)
