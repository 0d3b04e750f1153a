"""Losing a worker in the middle of a construct."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost import Handle, Saga
from tests.support.apps.sagas import Order
from tests.support.scene import Scene


def killed(
    scene: Scene,
    saga: Saga[Order, Any],
    point: str,
    match: Mapping[str, str] | None = None,
    **order: Any,
) -> Handle[Any]:
    """Start an execution, and kill the worker that comes to a point of it."""
    fault = scene.fleet.arm(point, "kill", **(match or {}))
    handle = scene.start(saga, **order)
    fault.victim().wait()
    return handle
