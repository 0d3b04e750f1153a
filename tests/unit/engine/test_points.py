"""No operation of a port is without a crash point before and after it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest

from fencepost import faults, ports
from fencepost.engine import Engine, EngineOptions, points
from fencepost.engine.registry import Registry
from fencepost.records import Execution
from fencepost.stores.memory import (
    MemoryEffectStore,
    MemoryExecutionStore,
    MemoryLeaseStore,
    MemoryLimitStore,
)

INSIDE = {ports.Transaction}
"""Reached by its store: `transaction.before-fence`, `.before-commit` and `.after-commit`."""


class Nobody:
    """A transport without workers."""

    def dispatch(self, execution: Execution) -> None:
        """Publish nothing."""

    def fan_out(self, children: Sequence[Execution]) -> None:
        """Publish nothing."""


def engine() -> Engine:
    executions = MemoryExecutionStore()
    return Engine(
        executions,
        MemoryLeaseStore(),
        Nobody(),
        Registry(()),
        EngineOptions(),
        effects=MemoryEffectStore(executions),
        limits=MemoryLimitStore(executions),
    )


def test_every_port_is_known() -> None:
    found = {
        kind
        for _, kind in inspect.getmembers(ports, inspect.isclass)
        if kind.__module__ == ports.__name__ and Protocol in kind.__bases__
    }
    assert found == {*points.PORTS.values(), *INSIDE}


@pytest.mark.parametrize("port", points.PORTS)
def test_every_operation_is_announced(
    port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(faults.ENVIRONMENT, str(tmp_path))
    store = getattr(engine(), port)
    protocol = points.PORTS[port]
    operations = {name for name in vars(protocol) if not name.startswith("_")}
    assert operations == set(points.operations(protocol))
    assert {name for name in operations if not hasattr(getattr(store, name), "announced")} == set()


def test_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(faults.ENVIRONMENT, str(tmp_path))
    armed = [
        faults.arm(tmp_path, f"executions.get.{when}", "note", name=when)
        for when in ("before", "after")
    ]
    execution_id = uuid4()
    engine().executions.get(execution_id)
    for plan in armed:
        (record,) = faults.fired(plan)
        assert record["facts"]["execution_id"] == str(execution_id)
    assert not list(tmp_path.glob("*.json"))


def test_the_names_are_told_apart() -> None:
    names = points.names()
    assert len(set(names)) == len(names) >= 80


def test_nothing_stands_between_in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(faults.ENVIRONMENT, raising=False)
    made = engine()
    assert not hasattr(made.executions.commit, "announced")
