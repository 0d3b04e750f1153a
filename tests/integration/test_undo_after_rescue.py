"""A child that its own error branch had saved, and whose parent fails after all."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from fencepost import ErrorBranch, Failure, Saga, Status, step
from tests.support.inline import Inline


class Order(BaseModel):
    number: int


class PartFailedError(Exception):
    pass


UNDONE: list[int] = []


@step
def undo(order: Order) -> None:
    UNDONE.append(order.number)


@step(compensate=undo)
def begin(order: Order) -> Order:
    return order


@step
def fail(order: Order) -> Order:
    raise PartFailedError


@step
def rescue(failure: Failure[Order]) -> Order:
    return failure.input


@step
def gate(orders: list[Order]) -> Order:
    raise RuntimeError("closed")


def parts(order: Order) -> list[Order]:
    return [order]


part = (
    Saga("part", input=Order)
    .then(begin)
    .then(fail)
    .on_error(ErrorBranch(PartFailedError).finish(rescue))
)
whole = Saga("whole", input=Order).map(part, over=parts, name="parts").then(gate)


@pytest.fixture
def fleet(sqlite_url: str) -> Any:
    fleet = Inline(sqlite_url, [whole])
    yield fleet
    fleet.close()


def test_it_ends_compensated_and_nothing_is_undone_twice(fleet: Inline) -> None:
    UNDONE.clear()
    root = fleet.run(whole, Order(number=1))
    (child,) = fleet.store.children(root, "parts", 1)
    assert child.status is Status.COMPENSATED
    assert fleet.row(root).status is Status.COMPENSATED
    assert UNDONE == [1]
    kinds = [str(entry.kind) for entry in fleet.store.chain(child.execution_id)]
    assert kinds == ["start", "step", "compensating", "undo", "step", "compensating"]
