"""What is on record is not run again, wherever the worker was lost."""

from __future__ import annotations

import asyncio

import pytest

from fencepost import (
    Status,
    TaskContext,
    step,
)
from fencepost.records import EventName
from tests.support.inline import Inline
from tests.unit.durable.support import (
    Point,
    deploy,
    double,
    job,
    parked,
    pay_once,
    ran,
    result,
    steps_of,
    three,
)


def test_a_body_runs_its_steps_in_order_and_each_is_recorded(fleet: Inline) -> None:
    deploy(three)
    execution_id = fleet.run(job, 5)
    assert fleet.row(execution_id).result == 12
    assert ran == ["body", "double 5", "add_one 10 at 1", "add_one 11 at 2"]
    assert steps_of(fleet, execution_id) == [
        "start:1",
        "double:1",
        "add_one:1",
        "add_one:2",
        "return:1",
    ]


@pytest.mark.parametrize(
    ("point", "match", "again"),
    [
        ("step.before", {"step": "double"}, []),
        ("step.after", {"step": "double"}, ["double 5"]),
        ("commit.before", {"step": "double"}, ["double 5"]),
        ("commit.after", {"step": "double"}, []),
        ("step.before", {"step": "add_one"}, []),
        ("step.after", {"step": "add_one"}, ["add_one 10 at 1"]),
        ("commit.after", {"step": "add_one"}, []),
        ("commit.before", {"step": "return"}, []),
        ("commit.after", {"step": "return"}, []),
    ],
)
def test_what_is_recorded_is_not_run_again(
    fleet: Inline, point: str, match: dict[str, str], again: list[str]
) -> None:
    deploy(three)
    with fleet.killed_at(point, **match):
        execution_id = fleet.run(job, 5)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == 12
    work = [what for what in ran if what != "body"]
    assert sorted(work) == sorted(["double 5", "add_one 10 at 1", "add_one 11 at 2", *again])


def test_a_zombie_of_a_body_changes_nothing(fleet: Inline) -> None:
    deploy(three)
    with fleet.frozen_at("commit.before", step="add_one"):
        execution_id = fleet.run(job, 5)
    row = fleet.row(execution_id)
    assert (row.status, row.result, row.epoch) == (Status.SUCCEEDED, 12, 2)
    assert len(fleet.events(execution_id, EventName.LEASE_LOST)) == 1
    assert len(steps_of(fleet, execution_id)) == 5


def test_recorded_results_come_back_as_their_types(fleet: Inline) -> None:
    @step
    def make(number: int) -> Point:
        return Point(x=number)

    def body(ctx: TaskContext, number: int) -> int:
        made = ctx.run(make, number)
        assert isinstance(made, Point)
        return ctx.run(double, made.x)

    deploy(body)
    with fleet.killed_at("commit.after", step="make"):
        execution_id = fleet.run(job, 4)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == 8


def test_a_plain_function_is_a_step(fleet: Inline) -> None:
    def half(number: int) -> float:
        return number / 2

    assert result(fleet, lambda ctx, number: ctx.run(half, number), 3) == 1.5


def test_loops_count_visits(fleet: Inline) -> None:
    def body(ctx: TaskContext, number: int) -> int:
        for _ in range(4):
            number = ctx.run(double, number)
        return number

    deploy(body)
    with fleet.killed_at("commit.after", step="double"):
        execution_id = fleet.run(job, 1)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == 16
    assert steps_of(fleet, execution_id)[1:-1] == [f"double:{n}" for n in (1, 2, 3, 4)]
    assert ran == ["double 1", "double 2", "double 4", "double 8"]


def test_coroutine_bodies_and_steps_run_to_their_end(fleet: Inline) -> None:
    @step
    async def fetch(number: int) -> int:
        await asyncio.sleep(0)
        ran.append("fetch")
        return number + 1

    async def body(ctx: TaskContext, number: int) -> int:
        fetched = ctx.run(fetch, number)
        await asyncio.sleep(0)
        return ctx.run(double, fetched)

    deploy(body)
    with fleet.killed_at("commit.after", step="fetch"):
        execution_id = fleet.run(job, 1)
        fleet.expire_leases()
    fleet.drain()
    assert fleet.row(execution_id).result == 4
    assert ran == ["fetch", "double 2"]


def test_a_coroutine_body_is_parked_like_any_other(fleet: Inline) -> None:
    async def body(ctx: TaskContext, cents: int) -> str:
        await asyncio.sleep(0)
        return ctx.perform(pay_once, cents)

    deploy(body)
    execution_id = fleet.run(job, 5)
    assert parked(fleet, execution_id)[1] == "effect.in-doubt"
