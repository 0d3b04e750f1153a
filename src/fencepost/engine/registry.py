"""The sagas that a process knows, by name and version."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from fencepost.commands import Definition
from fencepost.effects import Effect
from fencepost.errors import SagaDefinitionError
from fencepost.saga import Saga

REMEMBERED = 1_000
"""Executions of unknown versions that are remembered as reported."""


class Registry:
    """Sagas by name and version; child sagas come along with their parents."""

    def __init__(self, sagas: Iterable[Definition] = ()) -> None:
        self._sagas: dict[tuple[str, str], Definition] = {}
        self._effects: dict[str, Effect[Any, Any]] = {}
        self._reported: OrderedDict[UUID, None] = OrderedDict()
        for saga in sagas:
            self.add(saga)

    def add(self, saga: Definition) -> None:
        """Register a saga and, at any depth, its child sagas.

        Raises:
            SagaDefinitionError: One of them has no steps, or two effects have one name.
        """
        if self._sagas.get((saga.name, saga.version)) is saga:
            return
        for known in saga.descendants():
            if isinstance(known, Saga) and not known.nodes:
                raise SagaDefinitionError(f"saga {known.name!r} has no steps", saga=known.name)
            self._sagas[known.name, known.version] = known
            for effect in known.effects:
                self._add_effect(effect)

    def _add_effect(self, effect: Effect[Any, Any]) -> None:
        # A takeover finds the sink whose fence it has to raise by the effect's recorded name.
        if self._effects.setdefault(effect.name, effect) is not effect:
            raise SagaDefinitionError(
                f"there are two effects named {effect.name!r}; give one @effect(name=...)",
                effect=effect.name,
            )

    def find(self, name: str, version: str) -> Definition | None:
        """The saga of exactly that version."""
        return self._sagas.get((name, version))

    def effect(self, name: str) -> Effect[Any, Any] | None:
        """The effect of that name, if a step of a registered saga declares it."""
        return self._effects.get(name)

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._sagas.values())

    def first_sight(self, execution_id: UUID) -> bool:
        """Whether this execution is reported for the first time."""
        if execution_id in self._reported:
            return False
        self._reported[execution_id] = None
        if len(self._reported) > REMEMBERED:
            self._reported.popitem(last=False)
        return True
