"""Whether what one type writes into the chain can be read from it as another.

A value is stored by the type of whoever gives it, and loaded by the type of whoever takes it. So
it isn't enough that a type checker is content: a `datetime` is a `date`, and its JSON isn't.
"""

from __future__ import annotations

import collections
import collections.abc as abstract
import dataclasses
import types
import typing
from enum import Enum, IntEnum
from pathlib import PurePath
from typing import Any, TypeVar

from pydantic import AnyUrl, BaseModel
from typing_extensions import is_typeddict


class Fit(IntEnum):
    """How well one type fits another."""

    NO = 0
    TRUSTED = 1
    """As far as is written: one of them says `Any`, or nothing."""
    YES = 2


ARRAYS: tuple[type, ...] = (
    list,
    tuple,
    set,
    frozenset,
    collections.deque,
    abstract.Sequence,
    abstract.MutableSequence,
    abstract.Set,
    abstract.MutableSet,
)
"""What JSON writes as an array."""

OBJECTS: tuple[type, ...] = (
    dict,
    collections.OrderedDict,
    collections.defaultdict,
    abstract.Mapping,
    abstract.MutableMapping,
)
"""What JSON writes as an object."""

ABSTRACT_ARRAYS: tuple[type, ...] = (abstract.Iterable, abstract.Collection)

WIDER: dict[type, tuple[type, ...]] = {bool: (int, float), int: (float,)}
"""Numbers that pydantic reads as others."""

Pair = tuple[str, str]


def fit(given: Any, wanted: Any) -> Fit:
    """How well values of `given`, stored as JSON, can be loaded as `wanted`.

    Constraints on values (lengths, ranges, validators) are left out: they are about values.
    """
    return _fit(given, wanted, frozenset())


def plain(declared: Any) -> Any:
    """A type without its annotations and aliases."""
    if declared is None:
        return type(None)
    while True:
        if typing.get_origin(declared) is typing.Annotated:
            declared = typing.get_args(declared)[0]
        elif type(declared).__name__ == "TypeAliasType":
            declared = declared.__value__
        else:
            return declared


def is_union(declared: Any) -> bool:
    """Whether it is written as one of several types."""
    return typing.get_origin(declared) in (typing.Union, types.UnionType)


def _fit(given: Any, wanted: Any, assumed: frozenset[Pair]) -> Fit:
    given, wanted = _bound(plain(given)), _bound(plain(wanted))
    if wanted is Any or wanted is object or given == wanted:
        return Fit.YES
    if given is Any:
        return Fit.TRUSTED
    pair = (repr(given), repr(wanted))
    # A type that holds itself fits if everything else about it does.
    return Fit.YES if pair in assumed else _parts_fit(given, wanted, assumed | {pair})


def _bound(declared: Any) -> Any:
    return declared.__bound__ or Any if isinstance(declared, TypeVar) else declared


def _parts_fit(given: Any, wanted: Any, assumed: frozenset[Pair]) -> Fit:
    if is_union(given):
        return min(_fit(part, wanted, assumed) for part in typing.get_args(given))
    if typing.get_origin(given) is typing.Literal:
        return min(_literal(value, wanted, assumed) for value in typing.get_args(given))
    if is_union(wanted):
        return max(_fit(given, part, assumed) for part in typing.get_args(wanted))
    if isinstance(given, typing.NewType):
        return _fit(given.__supertype__, wanted, assumed)
    return _classes(given, wanted, assumed)


def _literal(value: Any, wanted: Any, assumed: frozenset[Pair]) -> Fit:
    if is_union(wanted):
        return max(_literal(value, plain(part), assumed) for part in typing.get_args(wanted))
    if typing.get_origin(wanted) is typing.Literal:
        allowed = [(type(one), one) for one in typing.get_args(wanted)]
        return Fit.YES if (type(value), value) in allowed else Fit.NO
    return _fit(type(value), wanted, assumed)


def _classes(given: Any, wanted: Any, assumed: frozenset[Pair]) -> Fit:
    one, other = _class_of(given), _class_of(wanted)
    if not (isinstance(one, type) and isinstance(other, type)):
        return Fit.NO
    if is_typeddict(one):
        return _typed_dicts(one, wanted, other, assumed)
    fits = Fit.YES if not is_typeddict(other) and _scalars(one, other) else Fit.NO
    if issubclass(one, BaseModel):
        fits = _models(one, other, assumed)
    elif one in ARRAYS or _is_named_tuple(one):
        fits = _arrays(given, wanted, assumed)
    elif one in OBJECTS:
        fits = _objects(given, wanted, assumed)
    elif dataclasses.is_dataclass(one):
        fits = _dataclasses(given, wanted, assumed)
    return fits


def _class_of(declared: Any) -> Any:
    return typing.get_origin(declared) or declared


def _scalars(given: type, wanted: type) -> bool:
    if wanted in WIDER.get(given, ()):
        return True
    if issubclass(given, Enum):
        # An enum with a mix-in is written as the mix-in's value.
        mixed = [base for base in (str, int, float) if base in given.__mro__]
        return any(base is wanted or wanted in WIDER.get(base, ()) for base in mixed)
    return issubclass(given, PurePath | AnyUrl) and issubclass(given, wanted)


def _arrays(given: Any, wanted: Any, assumed: frozenset[Pair]) -> Fit:
    given_class, wanted_class = _class_of(given), _class_of(wanted)
    if wanted_class not in (*ARRAYS, *ABSTRACT_ARRAYS) or not issubclass(given_class, wanted_class):
        return Fit.NO
    items, fixed = _items(given)
    wanted_items, wanted_fixed = _items(wanted)
    if wanted_items is None:
        return Fit.YES
    if items is None:
        return Fit.TRUSTED
    if wanted_fixed:
        if not fixed or len(items) != len(wanted_items):
            return Fit.NO
        pairs = list(zip(items, wanted_items, strict=True))
    else:
        pairs = [(item, wanted_items[0]) for item in items]
    return min((_fit(*pair, assumed) for pair in pairs), default=Fit.YES)


def _items(declared: Any) -> tuple[tuple[Any, ...] | None, bool]:
    """The types of an array's items, and whether each stands for one; None if nothing is said."""
    origin = typing.get_origin(declared)
    if origin is None:
        if _is_named_tuple(declared):
            return tuple(typing.get_type_hints(declared).values()), True
        return None, False
    arguments = typing.get_args(declared)
    if origin is tuple and Ellipsis not in arguments:
        return arguments, True
    return tuple(a for a in arguments if a is not Ellipsis), False


def _is_named_tuple(declared: Any) -> bool:
    return isinstance(declared, type) and issubclass(declared, tuple) and declared is not tuple


def _objects(given: Any, wanted: Any, assumed: frozenset[Pair]) -> Fit:
    given_class, wanted_class = _class_of(given), _class_of(wanted)
    if wanted_class not in OBJECTS or not issubclass(given_class, wanted_class):
        return Fit.NO
    arguments, wanted_arguments = typing.get_args(given), typing.get_args(wanted)
    if not wanted_arguments:
        return Fit.YES
    if not arguments:
        return Fit.TRUSTED
    return min(
        _keys(arguments[0], wanted_arguments[0], assumed),
        _fit(arguments[1], wanted_arguments[1], assumed),
    )


def _keys(given: Any, wanted: Any, assumed: frozenset[Pair]) -> Fit:
    # JSON's keys are texts, and "true" is no number.
    if wanted not in (Any, object) and _has_bool(given) and not _has_bool(wanted):
        return Fit.NO
    return _fit(given, wanted, assumed)


def _has_bool(declared: Any) -> bool:
    if typing.get_origin(declared) is typing.Literal:
        return any(isinstance(value, bool) for value in typing.get_args(declared))
    if is_union(declared):
        return any(map(_has_bool, typing.get_args(declared)))
    return declared is bool


def _typed_dicts(given: Any, wanted: Any, wanted_class: Any, assumed: frozenset[Pair]) -> Fit:
    hints = typing.get_type_hints(given)
    if wanted_class in OBJECTS:
        arguments = typing.get_args(wanted)
        if not arguments:
            return Fit.YES
        keys = _keys(str, arguments[0], assumed)
        return min([keys, *(_fit(one, arguments[1], assumed) for one in hints.values())])
    if not is_typeddict(wanted_class):
        return Fit.NO
    wanted_hints = typing.get_type_hints(wanted_class)
    if not wanted_class.__required_keys__ <= given.__required_keys__:
        return Fit.NO
    if (
        _forbids_more(wanted_class, "__pydantic_config__")
        and not hints.keys() <= wanted_hints.keys()
    ):
        return Fit.NO
    shared = wanted_hints.keys() & hints.keys()
    return min((_fit(hints[k], wanted_hints[k], assumed) for k in shared), default=Fit.YES)


def _models(given: type[BaseModel], wanted: type, assumed: frozenset[Pair]) -> Fit:
    if not issubclass(wanted, BaseModel) or not _same_line(given, wanted):
        return Fit.NO
    fields, wanted_fields = given.model_fields, wanted.model_fields
    more = {*fields, *given.model_computed_fields} - {*wanted_fields}
    if more and _forbids_more(wanted, "model_config"):
        return Fit.NO
    if not wanted_fields.keys() <= fields.keys():
        return Fit.NO
    return min(
        (
            _fit(fields[name].annotation, field.annotation, assumed)
            for name, field in wanted_fields.items()
        ),
        default=Fit.YES,
    )


def _same_line(given: type[BaseModel], wanted: type[BaseModel]) -> bool:
    # Failure[Order] is no subclass of Failure[Any], but of the same generic class.
    origin = wanted.__pydantic_generic_metadata__["origin"] or wanted
    return issubclass(given, wanted) or issubclass(given, origin)


def _forbids_more(declared: Any, config: str) -> bool:
    return bool((getattr(declared, config, None) or {}).get("extra") == "forbid")


def _dataclasses(given: Any, wanted: Any, assumed: frozenset[Pair]) -> Fit:
    given_class, wanted_class = _class_of(given), _class_of(wanted)
    if not (dataclasses.is_dataclass(wanted_class) and wanted_class in given_class.__mro__):
        return Fit.NO
    if _forbids_more(wanted_class, "__pydantic_config__") and given_class is not wanted_class:
        return Fit.NO
    fields, wanted_fields = _fields(given), _fields(wanted)
    return min(
        (_fit(fields[name], declared, assumed) for name, declared in wanted_fields.items()),
        default=Fit.YES,
    )


def _fields(declared: Any) -> dict[str, Any]:
    """A dataclass's fields with their types; what a base class leaves open is `Any`."""
    origin = typing.get_origin(declared) or declared
    parameters = getattr(origin, "__parameters__", ())
    known = dict(zip(parameters, typing.get_args(declared), strict=False))
    hints = typing.get_type_hints(origin)
    return {
        field.name: _substituted(hints[field.name], known) for field in dataclasses.fields(origin)
    }


def _substituted(declared: Any, known: dict[Any, Any]) -> Any:
    if isinstance(declared, TypeVar):
        return known.get(declared, Any)
    parameters = getattr(declared, "__parameters__", ())
    if not parameters:
        return declared
    return declared[tuple(known.get(parameter, Any) for parameter in parameters)]
