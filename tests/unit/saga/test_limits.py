"""Limits as they are declared: names, keys, spacings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import SagaDefinitionError
from fencepost.limits import KEY_LIMIT, Limit, next_start

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def keyed(key: Any) -> Limit:
    return Limit(name="gpu", concurrency=1, key=lambda _: key)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\tb", "x" * 101])
def test_a_limit_needs_a_name_that_can_be_told_from_its_key(name):
    with pytest.raises(SagaDefinitionError, match="limit"):
        Limit(name=name, concurrency=1)


def test_a_limit_limits_something():
    with pytest.raises(SagaDefinitionError, match="'gpu' needs a concurrency or a rate"):
        Limit(name="gpu")


@pytest.mark.parametrize(
    "numbers", [{"concurrency": 0}, {"rate": 0}, {"concurrency": 2, "rate": -1}]
)
def test_numbers_are_one_or_more(numbers):
    with pytest.raises(SagaDefinitionError, match="numbers must be 1 or more"):
        Limit(name="gpu", **numbers)


@pytest.mark.parametrize("per", [timedelta(0), timedelta(seconds=-1)])
def test_a_rate_is_per_some_time(per):
    with pytest.raises(SagaDefinitionError, match="`per` must be positive"):
        Limit(name="gpu", rate=1, per=per)


def test_a_rate_is_per_second_unless_it_says_otherwise():
    assert Limit(name="gpu", rate=4).spacing() == timedelta(milliseconds=250)


def test_what_is_limited_is_the_name():
    assert Limit(name="gpu", concurrency=1).resource({"customer": "ann"}) == "gpu"


def test_with_a_key_it_is_each_of_the_keys_values():
    limit = Limit(name="gpu", concurrency=1, key=lambda order: order["customer"])
    assert limit.resource({"customer": "ann"}) == "gpu:ann"
    assert limit.resource({"customer": "a b:größe 🦀"}) == "gpu:a b:größe 🦀"


def test_a_key_may_be_long_and_the_resource_fits_its_column():
    limit = Limit(name="x" * 100, concurrency=1, key=lambda _: "y" * KEY_LIMIT)
    assert len(limit.resource(None)) <= 255


@pytest.mark.parametrize(
    "key", ["", "y" * (KEY_LIMIT + 1), 7, None, b"ann", "a\x00b", "a\nb", "\ud800"]
)
def test_a_key_that_cannot_be_kept_is_refused(key):
    with pytest.raises(SagaDefinitionError, match="its key must be a text of 1 to 150") as caught:
        keyed(key).resource(None)
    assert caught.value.fields["limit"] == "gpu"


def test_what_a_key_raises_is_the_callers():
    limit = Limit(name="gpu", concurrency=1, key=lambda order: order["customer"])
    with pytest.raises(KeyError):
        limit.resource({})


def test_without_a_rate_starts_need_no_spacing():
    assert Limit(name="gpu", concurrency=1).spacing() == timedelta(0)


@given(
    rate=st.integers(1, 10_000),
    per=st.timedeltas(min_value=MILLISECOND, max_value=timedelta(days=7)),
    resolution=st.sampled_from([timedelta(microseconds=1), MILLISECOND]),
)
def test_no_more_start_in_any_time_than_the_rate_says(rate, per, resolution):
    spacing = Limit(name="gpu", rate=rate, per=per).spacing(resolution)
    assert spacing % resolution == timedelta(0)
    assert rate * spacing >= per, "the start after `rate` others is a whole `per` later"
    assert rate * (spacing - resolution) < per, "and no later than it has to be"


def test_a_third_of_a_second_is_rounded_up():
    three = Limit(name="gpu", rate=3)
    assert three.spacing() == timedelta(microseconds=333_334)
    assert three.spacing(MILLISECOND) == timedelta(milliseconds=334)


@pytest.mark.parametrize(
    ("given_up", "kept", "expected"),
    [
        ([], None, 40),
        ([], 30, 40),
        ([30], 20, 30),
        ([30, 20], 10, 20),
        ([20, 30], None, 20),
        ([20], 30, 40),
        ([10, 30], 20, 30),
        ([-10], None, 40),
        ([0], None, 40),
        ([-10, 30], None, 30),
    ],
    ids=[
        "none, and nobody is left",
        "none",
        "the last",
        "the last two",
        "all",
        "one before another's",
        "the last, and one before another's",
        "one that has passed",
        "one that has just come",
        "the last, and one that has passed",
    ],
)
def test_starts_given_up_are_free_again_after_all_that_are_kept(given_up, kept, expected):
    left = None if kept is None else at(kept)
    assert next_start(at(40), [at(start) for start in given_up], left, NOON) == at(expected)


def test_before_the_first_start_nothing_has_to_be_kept():
    assert next_start(None, [], None, NOON) is None
