"""Values to JSON and back, by their declared types; and their digests."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from fencepost.errors import PayloadError, SagaDefinitionError

Json = Any
"""A JSON-compatible value: None, bool, int, float, str, list or dict of those."""

# In JSON text: an escape that isn't itself escaped.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@functools.lru_cache(maxsize=1024)
def _adapter(declared: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(declared)
    except Exception as problem:
        raise SagaDefinitionError(
            f"{describe(declared)} can't be stored as JSON: use pydantic models, dataclasses"
            f" or plain JSON types ({type(problem).__name__})"
        ) from problem


def adapter(declared: Any) -> TypeAdapter[Any]:
    """The pydantic adapter of a declared type.

    Raises:
        SagaDefinitionError: pydantic has no schema for the type.
    """
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        return _adapter(declared)
    try:
        hash(declared)
    except TypeError:
        return TypeAdapter(declared)
    return _adapter(declared)


def dump(value: Any, declared: Any, *, what: str) -> Json:
    """Turn a value into JSON-compatible data, checking it against its declared type.

    Args:
        value: The value.
        declared: Its annotation.
        what: Names the value in an error, such as `result of step 'stage'`.

    Raises:
        PayloadError: The value is not of the declared type, or JSON can't hold it.
    """
    try:
        checked = adapter(declared).validate_python(value)
        data = adapter(declared).dump_python(checked, mode="json")
        text = json.dumps(data, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (ValidationError, PydanticSerializationError, TypeError, ValueError) as problem:
        raise PayloadError(
            f"the {what} is not a {describe(declared)}: {_reason(problem)}", what=what
        ) from problem
    if _NUL.search(text):
        raise PayloadError(
            f"the {what} has a NUL character, which PostgreSQL can't store", what=what
        )
    return data


def load(data: Json, declared: Any, *, what: str) -> Any:
    """Turn stored JSON data back into a value of the declared type.

    Raises:
        PayloadError: The stored data doesn't fit the type (any more).
    """
    try:
        # By its name, as it is stored, and by its alias, as people send it.
        return adapter(declared).validate_json(json.dumps(data), by_alias=True, by_name=True)
    except ValidationError as problem:
        raise PayloadError(
            f"the stored {what} doesn't fit {describe(declared)}: {_reason(problem)}", what=what
        ) from problem


def digest(data: Json) -> str:
    """SHA-256 over the canonical JSON form: sorted keys, no white space; `sha256:<hex>`."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def describe(declared: Any) -> str:
    """A type as a person would write it."""
    return declared.__name__ if isinstance(declared, type) else str(declared)


def _reason(problem: Exception) -> str:
    if isinstance(problem, ValidationError):
        first = problem.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place}: {first['msg']}" if place else str(first["msg"])
    return str(problem)
