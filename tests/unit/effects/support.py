"""A world in memory: stores on a clock that a test moves, a sink that counts, owners."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from fencepost.effects import (
    Effect,
    EffectCall,
    EffectKind,
    EffectRecord,
    EffectStatus,
    Landed,
    NotLanded,
    Unknown,
)
from fencepost.engine.effects import InDoubt, Performer
from fencepost.errors import FencepostError
from fencepost.fence import FenceToken
from fencepost.retry import RetryPolicy
from fencepost.stores.memory import MemoryEffectStore, MemoryExecutionStore
from tests.conformance.support import Worker, started

CALLED = [kind for kind in EffectKind if kind is not EffectKind.TRANSACTIONAL]
"""Kinds whose sink is called; the others land with their step."""

KEY = "order:42"
SINK = "payments"


class Refund(BaseModel):
    order: int = 42
    cents: int = 999


class Receipt(BaseModel):
    number: int


class CardDeclinedError(Exception):
    pass


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Sink:
    """Answers calls from a script, and remembers them.

    Attributes:
        answers: What calls do, the last one for ever: return a value, or raise it.
        probed: What probes answer or raise, likewise.
        calls: What the effect's function was given.
        probes: What the probe was given.
        marks: What `advance` was given.
    """

    answers: list[Any] = field(default_factory=lambda: [Receipt(number=1)])
    probed: list[Any] = field(default_factory=lambda: [NotLanded()])
    calls: list[tuple[EffectCall, Any]] = field(default_factory=list)
    probes: list[tuple[EffectCall, Any]] = field(default_factory=list)
    marks: list[tuple[str, FenceToken]] = field(default_factory=list)
    while_called: Callable[[], object] = lambda: None

    def call(self, call: EffectCall, request: Refund) -> Receipt:
        self.calls.append((call, request))
        self.while_called()
        answer: Receipt = _next(self.answers)
        return answer

    def probe(self, call: EffectCall, request: Refund) -> Landed[Receipt] | NotLanded | Unknown:
        self.probes.append((call, request))
        answer: Landed[Receipt] | NotLanded | Unknown = _next(self.probed)
        return answer

    def advance(self, resource: str, token: FenceToken) -> None:
        self.marks.append((resource, token))


def _next(script: list[Any]) -> Any:
    answer = script.pop(0) if len(script) > 1 else script[0]
    if isinstance(answer, BaseException):
        raise answer
    return answer


NEEDS: dict[EffectKind, Callable[[Sink], dict[str, Any]]] = {
    EffectKind.FENCED: lambda sink: {"fence": sink},
    EffectKind.RECONCILABLE: lambda sink: {"probe": sink.probe},
}


def declare(at: Sink, kind: EffectKind, **options: Any) -> Effect[Refund, Receipt]:
    """An effect of that kind at the sink."""
    needed = NEEDS[kind](at) if kind in NEEDS else {}
    options = {"sink": SINK, "name": "refund", **needed, **options}
    if kind is not EffectKind.TRANSACTIONAL:
        options.setdefault("refused", (CardDeclinedError,))
    return Effect(at.call, kind=kind, **options)


THRICE = RetryPolicy(
    attempts=3,
    first_delay=timedelta(seconds=1),
    max_delay=timedelta(seconds=4),
    retry_on=(Exception,),
)


class World:
    """One execution, its owners, and a sink."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryExecutionStore(clock=self.clock)
        self.effects = MemoryEffectStore(self.store)
        self.sink = Sink()
        self.owner = started(self.store)
        self.time_left = 5.0

    def performer(
        self, *declared: Effect[Any, Any], worker: Worker | None = None, **fields: Any
    ) -> Performer:
        """What an attempt at a step performs with."""
        worker = worker or self.owner
        fields.setdefault("attempt", 1)
        fields.setdefault("token", worker.token())
        return Performer(
            store=self.effects,
            declared=declared,
            time_left=lambda: self.time_left,
            **fields,
        )

    def perform(
        self,
        effect: Effect[Any, Any],
        request: Any = None,
        key: str | None = KEY,
        **fields: Any,
    ) -> Any:
        """One attempt that performs one effect."""
        request = Refund() if request is None else request
        return self.performer(effect, **fields).perform(effect, request, key)

    def in_doubt(self, effect: Effect[Any, Any], **fields: Any) -> InDoubt:
        """The same, where it ends in doubt."""
        try:
            answer = self.perform(effect, **fields)
        except InDoubt as doubt:
            return doubt
        raise AssertionError(f"it isn't in doubt, but {answer!r}")

    def take_over(self) -> Worker:
        """Another owner."""
        self.owner = Worker.take(self.store, self.owner.execution_id)
        return self.owner

    def record(self, key: str = KEY) -> EffectRecord:
        """What is stored of a key."""
        with self.store.locked() as (tables, now, _):
            return tables.effects[SINK, key].as_of(now)

    @property
    def keys(self) -> list[str]:
        """All keys on record."""
        with self.store.locked() as (tables, _, _at):
            return [key for _, key in tables.effects]

    def brought_to(self, effect: Effect[Any, Any], status: EffectStatus) -> None:
        """An earlier owner has left the effect like this, and is gone."""
        match status:
            case EffectStatus.INTENT:
                self.sink.while_called = _die
                with suppress(Died):
                    self.perform(effect)
                self.sink.while_called = lambda: None
            case EffectStatus.IN_DOUBT:
                self._answering(effect, TimeoutError("no answer"))
            case EffectStatus.CONFIRMED:
                self._answering(effect, Receipt(number=1))
            case EffectStatus.REFUSED:
                self._answering(effect, CardDeclinedError("no"))
            case EffectStatus.NOT_LANDED:
                self._answering(effect, TimeoutError("no answer"))
                self.park()
                self.effects.resolve(
                    SINK, KEY, landed=False, result=None, by="ada", why="asked them"
                )
                self.store.unpark(self.owner.execution_id, "resolved")
        assert self.record().status is status
        self.take_over()
        self.sink.calls.clear()

    def _answering(self, effect: Effect[Any, Any], answer: Any) -> None:
        before, self.sink.answers = self.sink.answers, [answer]
        with suppress(InDoubt, FencepostError):
            self.perform(effect)
        self.sink.answers = before

    def park(self) -> None:
        """Stop for a person."""
        self.store.park(self.owner.token(), "in doubt", None)


class Died(BaseException):
    """A process that is killed."""


def _die() -> None:
    raise Died
