"""The sagas that a process knows, by name and version."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID
from weakref import WeakSet

from fencepost.commands import Definition
from fencepost.effects import Effect
from fencepost.errors import SagaDefinitionError
from fencepost.findings import Finding, errors_in, source_of
from fencepost.limits import Limit
from fencepost.saga import Saga
from fencepost.saga.checks import check, rules
from fencepost.saga.checks.bounds import same_figures

REMEMBERED = 1_000
"""Executions of unknown versions that are remembered as reported."""

_lenient: ContextVar[bool] = ContextVar("fencepost_lenient_registry", default=False)


@contextmanager
def leniently() -> Iterator[None]:
    """In here what has errors is put aside (`Registry.refused`), and nothing is raised.

    For whoever wants to see all findings of a module that registers what it defines.
    """
    token = _lenient.set(True)
    try:
        yield
    finally:
        _lenient.reset(token)


class Registry:
    """Sagas by name and version; child sagas come along with their parents.

    Attributes:
        refused: What has errors and was only put aside; see `leniently`.
    """

    def __init__(self, sagas: Iterable[Definition] = ()) -> None:
        self._sagas: dict[tuple[str, str], Definition] = {}
        self._effects: dict[str, Effect[Any, Any]] = {}
        self._limits: dict[str, Limit] = {}
        self._added: WeakSet[Definition] = WeakSet()
        self._reported: OrderedDict[UUID, None] = OrderedDict()
        self.refused: list[Definition] = []
        for saga in sagas:
            self.add(saga)

    def add(self, saga: Definition) -> None:
        """Register a saga and, at any depth, its child sagas.

        Raises:
            SagaDefinitionError: `fencepost check` finds errors in it, or a name in it stands for
                something else already. Names all of them; `fields["findings"]` has them as data.
        """
        if saga in self._added:
            return
        errors = errors_in(self.check(saga))
        if errors and _lenient.get():
            self.refused.append(saga)
            return
        if errors:
            raise refusal(saga, errors)
        for known in saga.descendants():
            self._sagas[known.name, known.version] = known
            for effect in known.effects:
                self._effects.setdefault(effect.name, effect)
        for limit in _limits_of(saga):
            self._limits.setdefault(limit.name, limit)
        self._added.add(saga)

    def check(self, saga: Definition) -> list[Finding]:
        """All findings about a saga, by itself and beside what is registered."""
        return list(dict.fromkeys([*check(saga), *self._clashes(saga)]))

    def _clashes(self, saga: Definition) -> Iterator[Finding]:
        # A takeover finds the sink whose fence it has to raise by the effect's recorded name.
        for known in saga.descendants():
            for effect in known.effects:
                if self._effects.get(effect.name, effect) is not effect:
                    said = f"another saga has another effect named {effect.name!r}"
                    source = source_of(effect.function)
                    yield rules.TWO_OF_A_NAME.at(known.name, said, source=source)
        for limit in _limits_of(saga):
            if not same_figures(self._limits.get(limit.name, limit), limit):
                said = f"another saga has a limit named {limit.name!r} with other figures"
                yield rules.TWO_FIGURES.at(saga.name, said)

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


def refusal(saga: Definition, errors: list[Finding]) -> SagaDefinitionError:
    """The error that names everything that is wrong with a saga."""
    listed = "\n".join(f"  {error}" for error in errors)
    return SagaDefinitionError(
        f"{saga.name!r} can't run as it is declared:\n{listed}",
        saga=saga.name,
        findings=[error.to_dict() for error in errors],
    )


def _limits_of(saga: Definition) -> Iterator[Limit]:
    for known in saga.descendants():
        if isinstance(known, Saga):
            yield from (step.limit for step in known.steps if step.limit is not None)
