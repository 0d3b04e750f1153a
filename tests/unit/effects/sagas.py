"""Sagas whose steps perform effects, each with a fleet of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost import (
    Saga,
    StepContext,
    TransactionalContext,
    step,
)
from fencepost.effects import Effect, EffectCall, EffectKind
from tests.unit.effects.fleet import Fleet
from tests.unit.effects.support import (
    CALLED,
    Receipt,
    Refund,
    Sink,
    declare,
)

RETRIED = [kind for kind in CALLED if kind is not EffectKind.AT_MOST_ONCE]


POINTS = ["before-intent", "after-intent", "applied", "before-conclusion", "after-conclusion"]
CRASHES = [f"effect.{point}" for point in [*POINTS, "confirmed"]] + ["step.after"]


class Refunds:
    """A saga of three steps, of which the second one performs an effect and has no undo.

    Attributes:
        before: What the second step does first.
        after: What it does when the effect has been performed.
        done: Names of what else was run.
    """

    def __init__(self, kind: EffectKind, **options: Any) -> None:
        self.sink = Sink()
        self.effect = declare(self.sink, kind, **options)
        self.after: Callable[[], object] = lambda: None
        self.before: Callable[[], object] = lambda: None
        self.done: list[str] = []
        self.saga = self._saga()
        self.fleet = Fleet(self.saga)

    def _saga(self) -> Saga[Refund, str]:
        @step
        def release(request: Refund) -> None:
            self.done.append("release")

        @step(compensate=release)
        def reserve(request: Refund) -> Refund:
            self.done.append("reserve")
            return request

        @step(effects=[self.effect])
        def pay(ctx: StepContext, request: Refund) -> Receipt:
            return self.pay(ctx, request)

        @step
        def thank(receipt: Receipt) -> str:
            return f"receipt {receipt.number}"

        return Saga("refunds", input=Refund).then(reserve).then(pay).then(thank)

    def pay(self, ctx: StepContext, request: Refund) -> Receipt:
        self.before()
        receipt = ctx.perform(self.effect, request)
        self.after()
        return receipt

    def run(self) -> Any:
        return self.fleet.run(self.saga, Refund())


def fail(error: BaseException) -> Callable[[], object]:
    def failing() -> None:
        raise error

    return failing


class Charges:
    """A saga whose first step charges and whose compensation pays back; the second one fails."""

    def __init__(self, kind: EffectKind, **options: Any) -> None:
        self.sink = Sink()
        self.move = declare(self.sink, kind, name="move_money", **options)
        move = self.move

        @step(effects=[move])
        def pay_back(ctx: StepContext, receipt: Receipt) -> None:
            ctx.perform(move, Refund(cents=-999))

        @step(effects=[move], compensate=pay_back)
        def charge(ctx: StepContext, request: Refund) -> Receipt:
            return ctx.perform(move, request)

        @step
        def ship(receipt: Receipt) -> str:
            raise ValueError("out of stock")

        self.saga = Saga("charges", input=Refund).then(charge).then(ship)
        self.fleet = Fleet(self.saga)

    def requests(self) -> list[int]:
        return [request.cents for _, request in self.sink.calls]


class Bookings:
    """A saga with a transactional step whose effect books."""

    def __init__(self, key: str | None = None) -> None:
        self.runs = 0
        self.after: Callable[[], object] = lambda: None
        self.result: Any = Receipt(number=1)

        def book(call: EffectCall, request: Refund) -> Receipt:
            self.runs += 1
            session: Any = call.session
            session.add((call.key, request.cents))
            receipt: Receipt = self.result
            return receipt

        self.effect = Effect(book, kind=EffectKind.TRANSACTIONAL, sink="ledger")
        effect = self.effect

        @step(transactional=True, effects=[effect])
        def enter(ctx: TransactionalContext, request: Refund) -> Receipt:
            receipt = ctx.perform(effect, request, key=key)
            self.after()
            return receipt

        self.saga = Saga("bookings", input=Refund).then(enter)
        self.fleet = Fleet(self.saga)
