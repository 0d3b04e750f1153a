"""Signals, approvals and rejections."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from fencepost import Signal, Status
from fencepost.engine.operations import Operations
from fencepost.errors import ExecutionStateError, PayloadError
from fencepost.records import EventName
from fencepost.stores.sql import SqlEffectStore
from tests.integration.operating.office import (
    DONE,
    WHO,
    Order,
    Reading,
    asked,
    is_sound,
    orders,
    reading,
    told,
)


def test_a_signal_wakes_who_waits_for_it(fleet, office):
    execution_id = fleet.run(told, Order(number=1))
    sent = office.signal(execution_id, reading, Reading(value=7), by="a thermometer")
    assert (sent.name, sent.payload, sent.by) == ("reading", {"value": 7}, "a thermometer")
    assert list(fleet.queue) == [execution_id]
    fleet.drain()
    assert fleet.row(execution_id).result == 7
    (event,) = fleet.events(execution_id, EventName.SIGNAL_SENT)
    assert event.details["by"] == "a thermometer"
    assert is_sound(fleet)


def test_one_that_comes_too_early_is_kept(fleet, office):
    execution_id = fleet.start(told, Order(number=1))
    fleet.queue.clear()
    office.signal(execution_id, "reading", {"value": 7})
    assert not fleet.queue
    fleet.drain()
    assert fleet.row(execution_id).result == 7


def test_a_key_is_used_once(fleet, office):
    execution_id = fleet.start(told, Order(number=1))
    first = office.signal(execution_id, reading, Reading(value=1), key="k")
    assert office.signal(execution_id, reading, Reading(value=2), key="k") == first
    assert office.signal(execution_id, reading, Reading(value=2)).signal_id != first.signal_id
    fleet.drain()
    assert fleet.row(execution_id).result == 1


def test_a_payload_of_another_type_is_not_sent(fleet, office):
    execution_id = fleet.run(told, Order(number=1))
    for signal in (reading, "reading"):
        with pytest.raises(PayloadError, match="payload of signal 'reading'"):
            office.signal(execution_id, signal, {"value": "much"})
    with pytest.raises(PayloadError, match="can't name a signal"):
        office.signal(execution_id, "two words", 1)
    for key in ("", "x" * 256):
        with pytest.raises(PayloadError, match="key"):
            office.signal(execution_id, reading, Reading(value=1), key=key)
    assert fleet.store.pending_signals(execution_id, "reading") == []


def test_a_name_that_the_saga_doesn_t_know_takes_any_json(fleet, office):
    execution_id = fleet.start(told, Order(number=1))
    assert office.signal(execution_id, "other", [1, {"a": None}]).payload == [1, {"a": None}]
    unknowing = Operations(fleet.store, SqlEffectStore(fleet.store))
    assert unknowing.signal(execution_id, "reading", "anything").signal.payload == "anything"


def test_what_has_ended_takes_no_signals(fleet, office):
    execution_id = fleet.run(orders, Order(number=1))
    with pytest.raises(ExecutionStateError, match="it takes no signals"):
        office.signal(execution_id, "reading", 1)


class Other(BaseModel):
    text: str


def test_a_declared_signal_is_held_to_its_own_type(fleet, office):
    execution_id = fleet.start(told, Order(number=1))
    with pytest.raises(PayloadError):
        office.signal(execution_id, Signal("other", Other), Reading(value=1))


def test_an_approval_lets_it_go_on(fleet, office):
    execution_id = fleet.run(asked, Order(number=1))
    office.approve(execution_id, "manager", by="ada", why="as agreed")
    assert list(fleet.queue) == [execution_id]
    fleet.drain()
    assert fleet.row(execution_id).status is Status.SUCCEEDED
    woken = fleet.store.chain(execution_id)[-2]
    assert (woken.kind, woken.result["payload"]["by"]) == ("woken", "ada")
    assert woken.result["payload"]["at"].endswith("Z")
    assert is_sound(fleet)


def test_a_rejection_has_it_undo_its_work(fleet, office):
    execution_id = fleet.run(asked, Order(number=1))
    office.reject(execution_id, "manager", by="ada", why="too dear")
    fleet.drain()
    row = fleet.row(execution_id)
    assert (row.status, row.error["code"]) == (Status.COMPENSATED, "approval.rejected")
    assert DONE == ["reserve", "release"]


def test_a_question_has_one_answer(fleet, office):
    execution_id = fleet.run(asked, Order(number=1))
    first = office.approve(execution_id, "manager", **WHO)
    assert office.approve(execution_id, "manager", by="bob", why="me too") == first
    with pytest.raises(ExecutionStateError, match="ada has approved 'manager' already"):
        office.reject(execution_id, "manager", by="bob", why="no")
    fleet.drain()
    assert fleet.row(execution_id).status is Status.SUCCEEDED


def test_an_answer_may_come_before_the_question(fleet, office):
    execution_id = fleet.start(asked, Order(number=1))
    office.approve(execution_id, "manager", **WHO)
    fleet.drain()
    assert fleet.row(execution_id).status is Status.SUCCEEDED


def test_a_name_that_is_no_approvals(fleet, office):
    execution_id = fleet.run(asked, Order(number=1))
    with pytest.raises(PayloadError, match="can't name a signal"):
        office.approve(execution_id, "the manager", **WHO)
    with pytest.raises(PayloadError, match=r"payload of signal 'approval\.manager'"):
        office.signal(execution_id, "approval.manager", {"approved": True})
