"""Crash points before and after each operation of each port.

Named `<port>.<operation>.before` and `.after`, such as `executions.commit.before`, with the
operation's execution and step as facts. They are put around a port's operations only where
`FENCEPOST_FAULTS` names a folder: in production nothing stands between the engine and its stores.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from fencepost import faults
from fencepost.ports import EffectStore, ExecutionStore, LeaseStore, LimitStore, Transport

PORTS: dict[str, type] = {
    "executions": ExecutionStore,
    "leases": LeaseStore,
    "effects": EffectStore,
    "limits": LimitStore,
    "transport": Transport,
}
"""The ports by the engine's names for them."""


def operations(port: type) -> list[str]:
    """The names of a port's operations."""
    return [name for name, _ in inspect.getmembers(port, inspect.isfunction) if name[0] != "_"]


def names() -> list[str]:
    """All of these points, in order."""
    return [
        f"{port}.{operation}.{when}"
        for port, kind in PORTS.items()
        for operation in operations(kind)
        for when in ("before", "after")
    ]


def surround(engine: Any) -> None:
    """Put the points around what an engine holds; once, however many engines share it."""
    for port, kind in PORTS.items():
        store = getattr(engine, port)
        for operation in operations(kind):
            found = getattr(store, operation)
            if not getattr(found, "announced", False):
                setattr(store, operation, _announcing(found, f"{port}.{operation}"))


def _announcing(operation: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(operation)
    def announced(*arguments: Any, **named: Any) -> Any:
        facts = dict(_facts([*arguments, *named.values()]))
        faults.reach(f"{name}.before", **facts)
        result = operation(*arguments, **named)
        faults.reach(f"{name}.after", **facts)
        return result

    announced.announced = True  # type: ignore[attr-defined] # how `surround` knows its own
    return announced


def _facts(arguments: list[Any]) -> Iterator[tuple[str, Any]]:
    """What the first argument that tells of an execution tells."""
    for argument in arguments:
        told = getattr(argument, "token", argument)
        execution_id = told if isinstance(told, UUID) else getattr(told, "execution_id", None)
        if isinstance(execution_id, UUID):
            yield "execution_id", execution_id
            yield "step", getattr(told, "step", None)
            yield "kind", getattr(argument, "kind", None)
            return
