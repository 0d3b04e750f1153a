"""Whether values of a type can be stored as JSON and loaded from it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fencepost import serde
from fencepost.errors import SagaDefinitionError

UNREADABLE = {
    "callable": "a function",
    "is-instance": "a class that pydantic doesn't know",
    "is-subclass": "a class",
}
"""Parts that no JSON turns into a value, by their kind in pydantic's core schema."""

NO_KEYS = {
    "dataclass",
    "dict",
    "frozenset",
    "list",
    "model",
    "none",
    "nullable",
    "set",
    "tuple",
    "typed-dict",
}
"""What isn't the same any more once it was the key of a JSON object."""

Schema = dict[str, Any]


def why_not_storable(declared: Any, *, given: bool) -> str | None:
    """Why values of a type can't go through the chain; None if they can.

    Args:
        declared: The type.
        given: Whether such values are stored too; what is only loaded may be an `Iterable`.
    """
    try:
        adapter = serde.adapter(declared)
        schemas = [adapter.json_schema()]
        if given:
            schemas.append(adapter.json_schema(mode="serialization"))
    except Exception as problem:  # noqa: BLE001 - pydantic, and what users make of it, raise all kinds
        return _first_line(problem)
    if given and any(_hides(schema) for schema in schemas):
        return "it has a secret in it, of which JSON gets only asterisks"
    return next(_problems(adapter.core_schema, given=given), None)


def has_bytes(declared: Any) -> bool:
    """Whether it has bytes in it that are stored as if they were UTF-8."""
    try:
        schema: Any = serde.adapter(declared).core_schema
    except SagaDefinitionError:
        return False
    return _plain_bytes(schema, "utf8")


def _plain_bytes(schema: Any, how: str) -> bool:
    if isinstance(schema, list | tuple):
        return any(_plain_bytes(part, how) for part in schema)
    if not isinstance(schema, dict):
        return False
    config = schema.get("config") or {}
    how = config.get("ser_json_bytes", how)
    if schema.get("type") == "bytes" and how == "utf8" and "serialization" not in schema:
        return True
    return any(_plain_bytes(part, how) for name, part in schema.items() if name != "metadata")


def _first_line(problem: Exception) -> str:
    cause = problem.__cause__ if isinstance(problem, SagaDefinitionError) else problem
    lines = str(cause or problem).splitlines()
    return lines[0] if lines else type(problem).__name__


def _hides(schema: Any) -> bool:
    if isinstance(schema, dict):
        return schema.get("writeOnly") is True or any(_hides(part) for part in schema.values())
    return isinstance(schema, list) and any(_hides(part) for part in schema)


def _problems(schema: Any, *, given: bool) -> Iterator[str]:
    if isinstance(schema, list | tuple):
        for part in schema:
            yield from _problems(part, given=given)
        return
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if isinstance(kind, str):
        yield from _own_problems(kind, schema, given=given)
    for name, part in _parts(kind, schema):
        if name not in ("metadata", "config", "serialization"):
            yield from _problems(part, given=given)


def _parts(kind: Any, schema: Schema) -> list[tuple[str, Any]]:
    """What of a schema reads JSON; the rest is for Python's own values."""
    if kind == "json-or-python":
        return [("json_schema", schema["json_schema"])]
    if kind == "lax-or-strict":
        return [("lax_schema", schema["lax_schema"])]
    return list(schema.items())


def _own_problems(kind: str, schema: Schema, *, given: bool) -> Iterator[str]:
    if kind in UNREADABLE:
        named = getattr(schema.get("cls"), "__name__", "")
        yield f"it has {UNREADABLE[kind]} in it{f' ({named})' if named else ''}"
    if kind == "generator" and given:
        yield "it can be read only once, so it can't be checked and stored: make it a list"
    if kind == "dict" and "keys_schema" in schema and not _is_key(schema["keys_schema"]):
        yield "the keys of a JSON object are texts, and these can't be read back from one"
    if not given:
        return
    if kind in ("model-field", "dataclass-field", "typed-dict-field"):
        lost = schema.get("serialization_exclude") is True or schema.get("init_only") is True
        if lost and _is_required(schema):
            yield f"field {schema.get('name', '')!r} is needed, and isn't stored"
    if kind == "model":
        forbids = (schema.get("config") or {}).get("extra_fields_behavior") == "forbid"
        inner = schema.get("schema")
        if forbids and isinstance(inner, dict) and inner.get("computed_fields"):
            yield "it stores computed fields that it doesn't take: it forbids what it doesn't know"


def _is_required(field: Schema) -> bool:
    inner = field.get("schema")
    return not (isinstance(inner, dict) and inner.get("type") == "default")


def _is_key(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return True
    kind = schema.get("type")
    if kind in NO_KEYS:
        return False
    if kind == "union":
        choices = (c[0] if isinstance(c, tuple) else c for c in schema["choices"])
        return all(_is_key(choice) for choice in choices)
    return _is_key(schema.get("schema"))
