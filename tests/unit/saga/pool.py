"""Types of all kinds, with values of each: what sagas are generated from."""

from __future__ import annotations

import dataclasses
import enum
import typing
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from types import UnionType
from typing import Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypeVar
from uuid import UUID

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel
from typing_extensions import TypedDict

T = TypeVar("T")


class Size(enum.StrEnum):
    SMALL = "small"
    LARGE = "large"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.Enum):
    ON = "on"
    OFF = 0


class Named(TypedDict):
    name: str


class NamedAndSized(TypedDict):
    name: str
    size: int
    note: NotRequired[str]


class Point(NamedTuple):
    x: int
    y: float


@dataclasses.dataclass
class Money:
    cents: int


@dataclasses.dataclass
class Price(Money):
    currency: str = "EUR"


@dataclasses.dataclass
class Pair(Generic[T]):
    left: T
    right: T


class Item(BaseModel):
    sku: str
    number: int = Field(1, alias="n")


class Priced(Item):
    money: Money


class Exact(BaseModel):
    model_config = ConfigDict(extra="forbid")
    sku: str


class MoreThanExact(Exact):
    model_config = ConfigDict(extra="ignore")
    colour: str


class Box(BaseModel, Generic[T]):
    content: T


class Tags(RootModel[list[str]]):
    pass


class Tree(BaseModel):
    name: str
    under: list[Tree] = []


Sku = NewType("Sku", str)

_texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=5)
_ints = st.integers(-(10**6), 10**6)
_floats = st.floats(-(10**6), 10**6, allow_nan=False)
_moneys = st.builds(Money, _ints)

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: _ints,
    float: _floats,
    str: _texts,
    type(None): st.none(),
    date: st.dates(),
    datetime: st.datetimes(timezones=st.just(UTC)) | st.datetimes(),
    timedelta: st.timedeltas(timedelta(-100), timedelta(100)),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False, places=2),
    UUID: st.uuids(),
    Path: _texts.map(Path),
    PurePath: _texts.map(PurePath),
    Size: st.sampled_from(Size),
    Level: st.sampled_from(Level),
    Mode: st.sampled_from(Mode),
    Named: st.fixed_dictionaries({"name": _texts}),
    NamedAndSized: st.fixed_dictionaries(
        {"name": _texts, "size": _ints}, optional={"note": _texts}
    ),
    Point: st.builds(Point, _ints, _floats),
    Money: _moneys,
    Price: st.builds(Price, _ints, _texts),
    Item: st.builds(Item, sku=_texts, n=_ints),
    Priced: st.builds(Priced, sku=_texts, n=_ints, money=_moneys),
    Exact: st.builds(Exact, sku=_texts),
    MoreThanExact: st.builds(MoreThanExact, sku=_texts, colour=_texts),
    Tags: st.lists(_texts, max_size=2).map(Tags),
    Tree: st.builds(Tree, name=_texts, under=st.just([Tree(name="leaf")])),
    Sku: _texts.map(Sku),
}
"""Types without parts."""

LITERALS = [Literal["small"], Literal["small", "large"], Literal[1, "one"], Literal[True]]

plain_types = st.sampled_from([*PLAIN, *LITERALS])
KEYS = [str, int, Size, UUID, bool]


def made_of(one: Any) -> list[Any]:
    """Types that have another one as their part."""
    made: list[Any] = [
        list[one],
        tuple[one, ...],
        tuple[one, one],
        tuple[str, one],
        Sequence[one],
        one | None,
        one | str,
        Box[one],
        Pair[one],
        *(dict[key, one] for key in KEYS),  # type: ignore[valid-type]
        Mapping[str, one],
    ]
    return made


HASHABLE = [int, str, Size]
SETS: list[Any] = [made for one in HASHABLE for made in (set[one], frozenset[one])]  # type: ignore[valid-type]


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    made = inner.flatmap(lambda one: st.sampled_from(made_of(one)))
    return st.one_of(made, st.sampled_from(SETS), st.tuples(inner, inner).map(_either))


def _either(two: tuple[Any, Any]) -> Any:
    return two[0] | two[1]


types = st.recursive(plain_types, _wider, max_leaves=3)
"""Types, most of them small."""


def values(declared: Any) -> st.SearchStrategy[Any]:
    """Values of one of these types."""
    if declared in PLAIN:
        return PLAIN[declared]
    if isinstance(declared, type) and issubclass(declared, Box):
        (inner,) = declared.__pydantic_generic_metadata__["args"]
        return values(inner).map(lambda content: declared(content=content))
    return _values_of_parts(typing.get_origin(declared), typing.get_args(declared))


def _values_of_parts(origin: Any, arguments: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, UnionType):
        return st.one_of(*map(values, arguments))
    if origin is tuple and Ellipsis not in arguments:
        return st.tuples(*map(values, arguments))
    if origin is Pair:
        return st.builds(Pair, values(arguments[0]), values(arguments[0]))
    if origin in (dict, Mapping):
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    made = {list: list, Sequence: list, tuple: tuple, set: set, frozenset: frozenset}
    return st.lists(values(arguments[0]), max_size=2).map(made[origin])
