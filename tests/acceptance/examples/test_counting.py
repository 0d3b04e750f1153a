"""The demonstrations' own judgement can say no."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from examples.data_pipeline.demo import CORRUPT, FIRST, SOURCES, Counted, expected, most_at_once
from examples.order_saga.model import Order
from examples.order_saga.stories import Told
from fencepost import Status

ORDER = Order(order_id="order-1", sku="lamp", quantity=1, cents=100, grams=100)
COUNTED = Counted(
    published=expected(),
    stored={day: rows for day, (rows, _) in expected().items()},
    at_once=dict.fromkeys(SOURCES, 2),
)


def told(**facts: tuple[Any, Any]) -> Told:
    return Told("a story", ORDER, uuid4(), Status.SUCCEEDED, "", facts)


def test_a_story_is_as_it_should_if_all_facts_are() -> None:
    assert told(charges=(1, 1), carriers=(["parcel"], ["parcel"])).as_it_should
    assert not told(charges=(2, 1), carriers=(["parcel"], ["parcel"])).as_it_should


def test_a_count_with_all_rows_is_right() -> None:
    assert COUNTED.as_it_should


@pytest.mark.parametrize(
    "wrong",
    [
        replace(COUNTED, stored={**COUNTED.stored, FIRST: 271}),
        replace(COUNTED, published={**COUNTED.published, FIRST: (260, 0)}),
        replace(COUNTED, published={**COUNTED.published, CORRUPT[1]: (250, 1)}),
        replace(COUNTED, at_once={**COUNTED.at_once, "clicks": 3}),
    ],
    ids=["a row twice", "rows missing", "half a partition", "a source overrun"],
)
def test_a_count_that_is_off_is_noticed(wrong: Counted) -> None:
    assert not wrong.as_it_should


def test_calls_that_overlap_are_counted() -> None:
    calls = [
        {"source": "clicks", "began": 0.0, "ended": 2.0},
        {"source": "clicks", "began": 1.0, "ended": 3.0},
        {"source": "clicks", "began": 2.0, "ended": 4.0},
        {"source": "stock", "began": 0.0, "ended": 9.0},
    ]
    assert most_at_once(calls, "clicks") == 2
    assert most_at_once(calls, "billing") == 0
