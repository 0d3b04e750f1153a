"""`@effect`: a function that changes the world, declared with what its sink can do."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from datetime import timedelta
from functools import update_wrapper
from typing import Any, Generic, NoReturn, TypeVar

from fencepost import serde
from fencepost.effects.model import (
    EffectCall,
    EffectKind,
    FencedSink,
    Landed,
    NotLanded,
    Unknown,
)
from fencepost.errors import (
    EffectDefinitionError,
    EffectOutsideStepError,
    SagaDefinitionError,
)
from fencepost.identity import check_name
from fencepost.retry import RetryPolicy

Req = TypeVar("Req")
Res = TypeVar("Res")

ProbeAnswer = Landed[Res] | NotLanded | Unknown
Function = Callable[[EffectCall, Req], Res]
Probe = Callable[[EffectCall, Req], ProbeAnswer[Res]]

SINK_LIMIT = 64
"""Characters of a sink's name."""

UNKNOWN_BY_NATURE = (TimeoutError, ConnectionResetError)
"""Errors after which a call may have landed, so that no sink says no by them."""

EFFECT_RETRIES = RetryPolicy(
    attempts=8,
    first_delay=timedelta(seconds=1),
    max_delay=timedelta(minutes=1),
    retry_on=(Exception,),
)
"""For calls whose outcome is unknown: the sink makes repeating (or asking) harmless."""


class Effect(Generic[Req, Res]):
    """A declared effect. Perform it with `ctx.perform(effect, request)`.

    Attributes:
        name: Unique in a fleet.
        kind: Which protocol it gets.
        sink: Where it lands; keys are unique for each sink.
    """

    def __init__(
        self,
        function: Function[Req, Res],
        *,
        kind: EffectKind,
        sink: str,
        name: str | None = None,
        probe: Probe[Req, Res] | None = None,
        fence: FencedSink | None = None,
        resource: Callable[[Req], str] | None = None,
        refused: tuple[type[Exception], ...] = (),
        retention: timedelta | None = None,
        in_flight: timedelta = timedelta(0),
        retry: RetryPolicy | None = None,
    ) -> None:
        self.name = check_name(name or str(getattr(function, "__name__", "")), "effect")
        self.function = function
        self.kind = self._read_kind(kind)
        self.sink = self._read_sink(sink)
        self.probe = probe
        self.fence = fence
        self.resource = resource
        self.refused = refused
        self.retention = retention
        self.in_flight = in_flight
        self.retry = retry or EFFECT_RETRIES
        self.request_type, self.result_type = self._read_types(function)
        self._check_kind()
        self._check_probe()
        self._check_refused()
        update_wrapper(self, function)

    def _read_kind(self, kind: EffectKind) -> EffectKind:
        try:
            return EffectKind(kind)
        except ValueError:
            self._refuse(f"has kind={kind!r}; there are: {', '.join(EffectKind)}")

    def _read_sink(self, sink: str) -> str:
        check_name(sink, "sink")
        if len(sink) > SINK_LIMIT:
            self._refuse(f"has a sink whose name is longer than {SINK_LIMIT} characters")
        return sink

    def _read_types(self, function: Function[Req, Res]) -> tuple[Any, Any]:
        try:
            hints = typing.get_type_hints(function)
        except NameError as problem:
            self._refuse(f"has an annotation that can't be resolved: {problem}")
        names = list(inspect.signature(function).parameters)
        typed = len(names) == 2 and names[1] in hints and "return" in hints
        if not typed or hints.get(names[0], EffectCall) is not EffectCall:
            self._refuse("must be `(call: EffectCall, request: T) -> R`, with annotations")
        for declared in (hints[names[1]], hints["return"]):
            try:
                serde.adapter(declared)
            except SagaDefinitionError as problem:
                self._refuse(f"has a type without a schema: {problem.message}")
        return hints[names[1]], hints["return"]

    def _check_kind(self) -> None:
        if self.kind is EffectKind.RECONCILABLE and self.probe is None:
            self._refuse("is reconcilable and needs probe=..., a function that asks the sink")
        if self.kind is EffectKind.FENCED and self.fence is None:
            self._refuse("is fenced and needs fence=..., the sink whose mark a takeover raises")
        if self.fence is not None and self.kind is not EffectKind.FENCED:
            self._refuse(f"is {self.kind}: only a fenced effect has a fence")
        if self.fence is not None and not callable(getattr(self.fence, "advance", None)):
            self._refuse("has a fence without advance(resource, token): see FencedSink")
        if self.retention is not None and self.kind is not EffectKind.IDEMPOTENT:
            self._refuse(f"is {self.kind}: only idempotency keys have a retention")
        if self.retention is not None and self.retention <= timedelta(0):
            self._refuse("has a retention that isn't positive")
        if self.in_flight < timedelta(0):
            self._refuse("has a negative in_flight")
        if self.in_flight and self.kind not in (EffectKind.IDEMPOTENT, EffectKind.RECONCILABLE):
            self._refuse(f"is {self.kind}: in_flight is for what a probe or a retention decides")
        if self.kind is EffectKind.TRANSACTIONAL and (self.probe or self.refused):
            self._refuse("is transactional: there is nothing to probe or refuse")

    def _check_probe(self) -> None:
        if self.probe is None:
            return
        if self.kind not in (EffectKind.IDEMPOTENT, EffectKind.RECONCILABLE):
            self._refuse(f"is {self.kind}: its probe would never be asked")
        try:
            inspect.signature(self.probe).bind(None, None)
        except TypeError:
            self._refuse("has a probe that isn't `(call: EffectCall, request: T) -> ...`")

    def _check_refused(self) -> None:
        if not isinstance(self.refused, tuple):
            self._refuse("has a refused that isn't a tuple of exception classes")
        for error in self.refused:
            if not (inspect.isclass(error) and issubclass(error, Exception)):  # type: ignore[redundant-expr] # callers without a type checker
                self._refuse(f"has refused={error!r}, which isn't an exception class")
            unknown = [kind.__name__ for kind in UNKNOWN_BY_NATURE if issubclass(kind, error)]
            if unknown:
                self._refuse(
                    f"counts {error.__name__} as the sink's refusal, and with it"
                    f" {' and '.join(unknown)}, after which nobody knows what has landed"
                )

    def _refuse(self, problem: str) -> NoReturn:
        raise EffectDefinitionError(f"effect {self.name!r} {problem}", effect=self.name)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: without its record, nobody would know whether it has landed."""
        raise EffectOutsideStepError(
            f"effect {self.name!r} was called directly: use ctx.perform({self.name}, request) in"
            f" a step, or {self.name}.function(call, request) in a unit test",
            effect=self.name,
        )

    def __repr__(self) -> str:
        return f"<Effect {self.name}: {self.kind} at {self.sink}>"


def effect(
    *,
    kind: EffectKind,
    sink: str,
    name: str | None = None,
    probe: Probe[Any, Any] | None = None,
    fence: FencedSink | None = None,
    resource: Callable[[Any], str] | None = None,
    refused: tuple[type[Exception], ...] = (),
    retention: timedelta | None = None,
    in_flight: timedelta = timedelta(0),
    retry: RetryPolicy | None = None,
) -> Callable[[Function[Req, Res]], Effect[Req, Res]]:
    """Declare `(call, request) -> result` as an effect.

    Args:
        kind: What the sink can do. Claim no more than it does.
        sink: Names where the effect lands.
        name: The function's name by default.
        probe: `(call, request) -> Landed(result) | NotLanded() | Unknown(why)`. Needed for
            reconcilable effects; an idempotent one uses it past its retention.
        fence: For fenced effects: raised at a takeover, before the new owner runs a step.
        resource: What the fence protects, from the request; the execution itself by default.
        refused: Errors by which the sink says no: nothing has landed. Every other error leaves
            the outcome unknown; a class that covers time-outs or lost connections is no refusal.
        retention: How long the sink remembers an idempotency key. Past it a key is never sent
            again: the probe is asked, or the execution parks.
        in_flight: How long a call may be under way before it lands or never will. A probe's
            `NotLanded` counts only after that, and a key is sent again only where it arrives
            within the retention.
        retry: For calls whose outcome is unknown, and for probes that fail.

    Raises:
        EffectDefinitionError: The declaration contradicts itself; says how.
    """

    def wrap(function: Function[Req, Res]) -> Effect[Req, Res]:
        return Effect(
            function,
            kind=kind,
            sink=sink,
            name=name,
            probe=probe,
            fence=fence,
            resource=resource,
            refused=refused,
            retention=retention,
            in_flight=in_flight,
            retry=retry,
        )

    return wrap
