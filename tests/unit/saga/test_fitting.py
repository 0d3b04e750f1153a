"""Whether types fit: by examples, and by storing and loading values of generated types."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr, computed_field

from fencepost import Failure, serde
from fencepost.failure import ErrorInfo
from fencepost.saga.fitting import Fit, fit
from fencepost.saga.storable import has_bytes, why_not_storable
from tests.unit.saga.pool import (
    LITERALS,
    PLAIN,
    Box,
    Exact,
    Item,
    Level,
    Mode,
    Money,
    MoreThanExact,
    Named,
    NamedAndSized,
    Pair,
    Point,
    Price,
    Priced,
    Size,
    Sku,
    Tree,
    made_of,
    types,
    values,
)

RIGHT = [
    (int, int),
    (int, float),
    (bool, int),
    (bool, float),
    (None, type(None)),
    (int, int | None),
    (int, object),
    (int, Any),
    (int | None, float | None),
    (int | str, str | int | None),
    (Literal["a"], str),
    (Literal["a"], Literal["a", "b"]),
    (Literal["a", 1], str | int),
    (Size, str),
    (Level, int),
    (Level, float),
    (Sku, str),
    (list[int], list[float]),
    (list[bool], Sequence[int]),
    (list[int], Iterable[int]),
    (list[int], list),
    (tuple[int, str], tuple[float, str]),
    (tuple[int, str], Sequence[int | str]),
    (tuple[int, ...], Sequence[int]),
    (Point, tuple[int, float]),
    (deque[int], Sequence[int]),
    (dict[str, int], Mapping[str, float]),
    (NamedAndSized, Named),
    (Named, dict[str, str]),
    (Named, Mapping[str, object]),
    (Priced, Item),
    (Price, Money),
    (Box[int], Box[float]),
    (Box[int], Box[Any]),
    (Pair[int], Pair[float]),
    (Tree, Tree),
    (Failure[Item], ErrorInfo),
    (Failure[Priced], Failure[Item]),
    (Failure[Item], Failure[Any]),
    (Annotated[int, "positive"], int),
    (int, Annotated[int, "positive"]),
]

WRONG = [
    (int, str),
    (float, int),
    (str, int),
    (datetime, date),
    (str, Sequence[str]),
    (str, Iterable[str]),
    (bytes, Sequence[int]),
    (dict[str, int], Iterable[str]),
    (dict[str, int], dict[str, str]),
    (dict[bool, int], dict[int, int]),
    (int | None, int),
    (int | str, int),
    (str, Literal["a"]),
    (Literal["a", "c"], Literal["a", "b"]),
    (Literal[1], Literal[True]),
    (str, Size),
    (Mode, str),
    (str, Sku),
    (object, int),
    (list[str], list[int]),
    (list[int], tuple[int, ...]),
    (list[int], set[int]),
    (tuple[int, ...], tuple[int, int]),
    (tuple[int, str], Sequence[int]),
    (tuple[int, str, int], tuple[int, str]),
    (Named, NamedAndSized),
    (NamedAndSized, dict[str, str]),
    (dict[str, str], Named),
    (Item, Priced),
    (Money, Price),
    (Money, Item),
    (MoreThanExact, Exact),
    (Box[str], Box[int]),
    (Pair[str], Pair[int]),
    (Failure[Item], Failure[Priced]),
    (ErrorInfo, Failure[Item]),
]

TRUSTED = [
    (Any, int),
    (list, list[int]),
    (list[Any], list[int]),
    (dict[str, Any], dict[str, int]),
    (Box[Any], Box[int]),
    (int | Any, int),
]


@pytest.mark.parametrize(("one", "other"), RIGHT, ids=str)
def test_it_fits(one: Any, other: Any) -> None:
    assert fit(one, other) is Fit.YES


@pytest.mark.parametrize(("one", "other"), WRONG, ids=str)
def test_it_does_not_fit(one: Any, other: Any) -> None:
    assert fit(one, other) is Fit.NO


@pytest.mark.parametrize(("one", "other"), TRUSTED, ids=str)
def test_it_fits_as_far_as_is_written(one: Any, other: Any) -> None:
    assert fit(one, other) is Fit.TRUSTED


class Chain(BaseModel):
    value: int
    rest: Chain | None = None


class LongerChain(Chain):
    rest: LongerChain | None = None
    more: str = ""


def test_types_that_hold_themselves_come_to_an_end() -> None:
    assert fit(LongerChain, Chain) is Fit.YES
    assert fit(Chain, LongerChain) is Fit.NO


SOME: list[Any] = [
    *PLAIN,
    *LITERALS,
    *(made for one in (int, float, bool, Size, Item, Priced) for made in made_of(one)),
]
FITTING = [
    (one, other) for one in SOME for other in SOME if one != other and fit(one, other) is Fit.YES
]
"""Different types of which one fits the other."""


def loads(one: Any, other: Any, data: st.DataObject) -> None:
    assert why_not_storable(one, given=True) is None
    assert why_not_storable(other, given=False) is None
    value = data.draw(values(one), "value")
    serde.load(serde.dump(value, one, what="value"), other, what="value")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FITTING), st.data())
def test_what_fits_another_type_can_be_loaded_as_it(pair: Any, data: st.DataObject) -> None:
    one, other = pair
    loads(one, other, data)


@settings(max_examples=300, deadline=None)
@given(types, types, st.data())
def test_what_fits_one_of_several_types_can_be_loaded(
    one: Any, other: Any, data: st.DataObject
) -> None:
    assert fit(one, one | other) is Fit.YES
    loads(one, one | other, data)
    if fit(one, other) is Fit.YES:
        loads(one, other, data)


def test_fitting_is_handed_on() -> None:
    fitting = {(SOME.index(one), SOME.index(other)) for one, other in FITTING}
    assert len(fitting) > 100
    for one, two in fitting:
        for other, three in fitting:
            if two == other and one != three:
                assert (one, three) in fitting, (SOME[one], SOME[two], SOME[three])


# -- storing -------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(types, st.data())
def test_a_type_fits_itself_and_can_be_stored(declared: Any, data: st.DataObject) -> None:
    assert fit(declared, declared) is Fit.YES
    loads(declared, declared, data)


class Secretive(BaseModel):
    password: SecretStr


class Excluding(BaseModel):
    kept: int
    lost: int = Field(exclude=True)


class Computing(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.number


class Foreign:
    pass


class Holding(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    held: Foreign


UNSTORABLE = [
    Foreign,
    Holding,
    list[Foreign],
    Callable[[int], int],
    type[int],
    Secretive,
    SecretStr,
    Excluding,
    Computing,
    dict[tuple[int, int], str],
    dict[str | None, str],
    dict[Item, str],
    Iterable[int],
    Iterator[int],
]


@pytest.mark.parametrize("declared", UNSTORABLE, ids=str)
def test_what_can_not_be_stored_says_why(declared: Any) -> None:
    assert why_not_storable(declared, given=True)


def test_what_is_only_loaded_may_be_read_once() -> None:
    assert why_not_storable(Iterable[int], given=False) is None


def test_bytes_are_stored_as_text_unless_a_model_says_otherwise() -> None:
    class Encoded(BaseModel):
        model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
        data: bytes

    class Raw(BaseModel):
        data: list[bytes]

    assert has_bytes(bytes)
    assert has_bytes(Raw)
    assert not has_bytes(Encoded)
    assert not has_bytes(str)
