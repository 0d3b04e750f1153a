"""Raising the fences at the sinks that an execution uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost import faults
from fencepost.effects import EffectKind
from fencepost.errors import FenceError, FenceUnavailableError
from fencepost.fence import FenceToken
from fencepost.records import Event, EventName

if TYPE_CHECKING:
    from fencepost.engine.core import Engine


def advance(engine: Engine, token: FenceToken) -> None:
    """Raise the mark of each resource for which an earlier owner has recorded an intent.

    Raises:
        FenceUnavailableError: A sink doesn't answer, or its effect isn't declared any more.
        StaleLeaseFenceError: A sink knows a later owner.
    """
    used = {
        (record.effect, record.resource)
        for record in engine.effects.of_execution(token.execution_id)
        if record.kind is EffectKind.FENCED and record.epoch < token.epoch
    }
    for name, resource in sorted(used):
        effect = engine.registry.effect(name)
        if effect is None or effect.fence is None:
            raise FenceUnavailableError(
                f"effect {name!r} was called, and no saga here declares it as fenced any more",
                effect=name,
            )
        faults.reach("fence.before-advance", effect=name, resource=resource)
        try:
            effect.fence.advance(resource, token)
        except FenceError:
            raise
        except Exception as problem:
            raise FenceUnavailableError(
                f"the fence at {effect.sink} could not be raised: {problem}",
                effect=name,
                resource=resource,
            ) from problem
        engine.executions.record(
            Event(
                execution_id=token.execution_id,
                name=EventName.FENCE_RAISED,
                epoch=token.epoch,
                owner=token.owner,
                sink=effect.sink,
                details={"effect": name, "resource": resource},
            )
        )
        faults.reach("fence.advanced", effect=name, resource=resource)
