"""Declaring, calling and starting durable tasks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from fencepost import (
    Saga,
    TaskContext,
    task,
)
from tests.support.inline import Inline
from tests.unit.durable.support import add_one, deploy, double, job, pay, ran, result, three


def test_the_function_can_be_called_as_one() -> None:
    class Doubles:
        """What a unit test gives instead of the engine's journal."""

        def run(self, step: Any, value: Any) -> Any:
            return step(value)

        def perform(self, effect: Any, request: Any, key: str | None) -> Any:
            return f"{effect.name} {request} {key}"

        def check(self) -> None: ...

    ctx = TaskContext(
        execution_id=UUID(int=1), lineage_id=UUID(int=1), root_id=UUID(int=1), journal=Doubles()
    )
    deploy(lambda ctx, number: [ctx.run(double, number), ctx.perform(pay, 1, key="k")])
    assert job(ctx, 4) == [8, "pay 1 k"]


def test_tasks_start_under_their_names_and_keys(
    fleet: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Any, ...]] = []

    def start(*given: Any, **named: Any) -> str:
        started.append((*given, named))
        return "handle"

    monkeypatch.setattr("fencepost.celery.start", start)
    handles: list[Any] = [job.start(3, key="order:3"), job.delay(4)]
    assert handles == ["handle", "handle"]
    assert started == [
        (job, 3, {"key": "order:3", "session": None}),
        (job, 4, {"key": None, "session": None}),
    ]
    deploy(three)
    one, two = fleet.start(job, 5, key="k"), fleet.start(job, 5, key="k")
    fleet.drain()
    assert one == two
    assert ran.count("double 5") == 1
    assert fleet.row(one).saga == "job"


def test_a_version_follows_the_types_and_not_the_body() -> None:
    def one(ctx: TaskContext, number: int) -> int:
        return number

    def two(ctx: TaskContext, number: int) -> int:
        return ctx.run(double, number)

    def three(ctx: TaskContext, number: str) -> int:
        return len(number)

    versions = [task(name="t")(body).version for body in (one, two)]
    assert versions[0] == versions[1]
    assert task(name="t")(three).version != versions[0]


def test_a_task_and_a_saga_live_side_by_side(fleet: Inline) -> None:
    line = Saga("line", input=int).then(double).then(add_one)
    fleet.engine.registry.add(line)
    assert fleet.row(fleet.run(line, 3)).result == 7
    assert result(fleet, three, 3) == 8
