"""Sagas and tasks with more than one payment, or with code that changes its mind."""

from __future__ import annotations

import time
from datetime import timedelta
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from examples.refund_agent.payments import (
    PaymentRefused,
    PaymentUnclear,
    RefundRequest,
)
from fencepost import (
    EffectCall,
    EffectKind,
    FencepostError,
    Landed,
    NotLanded,
    Saga,
    StepContext,
    TaskContext,
    Unknown,
    effect,
    faults,
    step,
    task,
)
from tests.acceptance.races.bank import bank
from tests.acceptance.races.shop import (
    IN_FLIGHT,
    QUICK,
    RETENTION,
    Money,
    ProviderFence,
    order_of,
    refund_blind,
    refund_deduped,
    refund_fenced,
    send,
    send_fenced,
)

clock = time.monotonic


class World:
    """What lies outside of the executions, and changes while they run: read by step bodies.

    Attributes:
        fee_cents: A deploy changes it.
        answers: What the model says next; the last one again and again.
        asked: How often the model was asked.
        cancelled: Orders that the customer has called off.
    """

    def __init__(self) -> None:
        self.fee_cents = 0
        self.answers: list[int] = []
        self.asked = 0
        self.cancelled: set[str] = set()

    def ask_model(self, _order: str) -> int:
        """An amount in cents, as a model decides it: not necessarily the same again."""
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


world = World()


class OutOfStock(FencepostError):
    """It can't be shipped."""

    code = "shop.out-of-stock"


class OrderCancelled(FencepostError):
    """The customer has called it off."""

    code = "shop.cancelled"


# -- charging, shipping, giving back ---------------------------------------------------------


@effect(
    kind=EffectKind.IDEMPOTENT,
    sink="dedupes",
    refused=(PaymentRefused,),
    retention=RETENTION,
    retry=QUICK,
)
def charge_deduped(call: EffectCall, money: Money) -> str:
    return send("dedupes", "charge", call, money, key=call.key)


@effect(
    kind=EffectKind.FENCED,
    sink="fences",
    fence=ProviderFence(),
    resource=order_of,
    refused=(PaymentRefused,),
    retry=QUICK,
)
def charge_fenced(call: EffectCall, money: Money) -> str:
    return send_fenced("charge", call, money)


def _purchase(mode: str, charge: Any, refund: Any) -> Saga[Money, str]:
    @step(name="give_back", effects=[refund])
    def give_back(ctx: StepContext, charge_id: str) -> None:
        ctx.perform(refund, ctx.input_as(Money))

    @step(name="take", effects=[charge], compensate=give_back)
    def take(ctx: StepContext, money: Money) -> str:
        landed: str = ctx.perform(charge, money)
        return landed

    @step(name="ship")
    def ship(ctx: StepContext, charge_id: str) -> str:
        raise OutOfStock("nothing left")

    return Saga(f"purchase_{mode}", input=Money).then(take).then(ship)


purchases = {
    "dedupes": _purchase("dedupes", charge_deduped, refund_deduped),
    "fences": _purchase("fences", charge_fenced, refund_fenced),
    # Charged where keys count, given back where nothing does.
    "blind": _purchase("blind", charge_deduped, refund_blind),
}


@step(effects=[refund_deduped])
def first_part(ctx: StepContext, money: Money) -> Money:
    ctx.perform(refund_deduped, money)
    return money


@step(effects=[refund_deduped])
def second_part(ctx: StepContext, money: Money) -> Money:
    ctx.perform(refund_deduped, money)
    return money


in_two_parts = Saga("in_two_parts", input=Money).then(first_part).then(second_part)


# -- keys ------------------------------------------------------------------------------------


@step(effects=[refund_deduped])
def pay_back_order(ctx: StepContext, money: Money) -> str:
    return ctx.perform(refund_deduped, money, key=f"refund:{money.order}")


refund_from_web = Saga("refund_from_web", input=Money).then(pay_back_order)
refund_at_night = Saga("refund_at_night", input=Money).then(pay_back_order)


@step(effects=[refund_deduped])
def give_order_back(ctx: StepContext, charge_id: str) -> None:
    money = ctx.input_as(Money)
    ctx.perform(refund_deduped, money, key=f"refund:{money.order}")


@step(effects=[charge_deduped], compensate=give_order_back)
def take_order(ctx: StepContext, money: Money) -> str:
    return ctx.perform(charge_deduped, money, key=f"charge:{money.order}")


@step
def ship_if_in_stock(ctx: StepContext, charge_id: str) -> str:
    order = ctx.input_as(Money).order
    if order in world.cancelled:
        raise OutOfStock("nothing left")
    return "shipped"


order_again = Saga("order_again", input=Money).then(take_order).then(ship_if_in_stock)


def on_the_statement(call: EffectCall, money: Money) -> Landed[str] | NotLanded:
    """Ask the provider's statement of account, which knows transfers for ever."""
    transfers = bank("dedupes").audit(money.order)["transfers"]
    found = [t for t in transfers if t["reference"] == call.key]
    return Landed(found[0]["id"]) if found else NotLanded()


@effect(
    kind=EffectKind.IDEMPOTENT,
    sink="dedupes-and-tells",
    refused=(PaymentRefused,),
    retention=RETENTION,
    probe=on_the_statement,
    in_flight=IN_FLIGHT,
    retry=QUICK,
)
def refund_remembered(call: EffectCall, money: Money) -> str:
    return send("dedupes", "refund", call, money, key=call.key)


@step(effects=[refund_remembered])
def pay_back_remembered(ctx: StepContext, money: Money) -> str:
    return ctx.perform(refund_remembered, money)


refund_with_statement = Saga("refund_with_statement", input=Money).then(pay_back_remembered)


# -- probes ----------------------------------------------------------------------------------


def asks_in_vain(call: EffectCall, money: Money) -> Landed[str] | NotLanded:
    """Ask where nobody answers."""
    found = bank("away").look_up("refund", call.key)
    return Landed(found) if found else NotLanded()


def cannot_tell(_call: EffectCall, _money: Money) -> Unknown:
    """The provider shows transfers only after its nightly run."""
    return Unknown("booked at night")


def _probed(name: str, probe: Any) -> Saga[Money, str]:
    @effect(
        name=f"refund_{name}",
        kind=EffectKind.RECONCILABLE,
        sink="queryable",
        probe=probe,
        in_flight=IN_FLIGHT,
        refused=(PaymentRefused,),
        retry=QUICK,
    )
    def refund(call: EffectCall, money: Money) -> str:
        return send("queryable", "refund", call, money)

    @step(name="pay_back", effects=[refund])
    def pay_back(ctx: StepContext, money: Money) -> str:
        return ctx.perform(refund, money)

    return Saga(f"refunding_{name}", input=Money).then(pay_back)


asking_in_vain = _probed("asking_in_vain", asks_in_vain)
asking_too_early = _probed("asking_too_early", cannot_tell)


def found_by_reference(call: EffectCall, _: Money) -> Landed[str] | NotLanded:
    """Ask the provider's own books."""
    found = bank("queryable").find(call.key)
    return Landed(found.id) if found else NotLanded()


@effect(
    kind=EffectKind.RECONCILABLE,
    sink="queryable",
    probe=found_by_reference,
    in_flight=IN_FLIGHT,
    refused=(PaymentRefused,),
    retry=QUICK,
)
def refund_on_an_old_connection(call: EffectCall, money: Money) -> str:
    """Connects first, so that a request from a process that froze comes too late."""
    faults.reach("shop.preparing", order=money.order)
    request = RefundRequest(order_id=money.order, amount_cents=money.cents, reason="")
    within = call.deadline - clock()
    return bank("queryable").refund(request, reference=call.key, send_within=within).id


@step(effects=[refund_on_an_old_connection])
def pay_back_on_an_old_connection(ctx: StepContext, money: Money) -> str:
    return ctx.perform(refund_on_an_old_connection, money)


refund_connected_first = Saga("refund_connected_first", input=Money).then(
    pay_back_on_an_old_connection
)


# -- code that changes its mind --------------------------------------------------------------


@step(effects=[refund_deduped])
def pay_back_with_fee(ctx: StepContext, money: Money) -> str:
    request = Money(order=money.order, cents=money.cents - world.fee_cents)
    return ctx.perform(refund_deduped, request)


refund_less_fee = Saga("refund_less_fee", input=Money).then(pay_back_with_fee)


@step(effects=[refund_deduped])
def pay_back_unless_cancelled(ctx: StepContext, money: Money) -> str:
    if money.order in world.cancelled:
        return "not wanted any more"
    return ctx.perform(refund_deduped, money)


refund_unless_cancelled = Saga("refund_unless_cancelled", input=Money).then(
    pay_back_unless_cancelled
)


@step(effects=[charge_deduped])
def take_unless_cancelled(ctx: StepContext, money: Money) -> str:
    if money.order in world.cancelled:
        raise OrderCancelled(money.order)
    return ctx.perform(charge_deduped, money)


charge_unless_cancelled = Saga("charge_unless_cancelled", input=Money).then(take_unless_cancelled)


@task(effects=(charge_deduped,))
def charging_task(ctx: TaskContext, money: Money) -> str:
    if money.order in world.cancelled:
        raise OrderCancelled(money.order)
    return ctx.perform(charge_deduped, money)


@task(effects=(charge_deduped,))
def charging_task_that_shrugs(ctx: TaskContext, money: Money) -> str:
    if money.order in world.cancelled:
        return "not wanted any more"
    return ctx.perform(charge_deduped, money)


@step(effects=[charge_deduped])
def take_then_stumble(ctx: StepContext, money: Money) -> str:
    charge_id = ctx.perform(charge_deduped, money)
    return charge_id.split("/")[1]


stumbling = Saga("stumbling", input=Money).then(take_then_stumble)


@effect(kind=EffectKind.IDEMPOTENT, sink="fences", refused=(PaymentRefused,), retry=QUICK)
def charge_elsewhere(call: EffectCall, money: Money) -> str:
    return send("fences", "charge", call, money, key=call.key)


def _with_fallback(ctx: Any, money: Money) -> str:
    """The natural way to write it: if the first provider doesn't answer, take the second."""
    try:
        landed: str = ctx.perform(charge_deduped, money)
    except Exception:  # noqa: BLE001 - that is the point
        landed = ctx.perform(charge_elsewhere, money)
    return landed


@step(effects=[charge_deduped, charge_elsewhere])
def take_somewhere(ctx: StepContext, money: Money) -> str:
    return _with_fallback(ctx, money)


falling_back = Saga("falling_back", input=Money).then(take_somewhere)


@task(effects=(charge_deduped, charge_elsewhere))
def falling_back_task(ctx: TaskContext, money: Money) -> str:
    return _with_fallback(ctx, money)


# -- a model decides -------------------------------------------------------------------------


def ask_model(order: str) -> int:
    """Not the same again."""
    return world.ask_model(order)


@task(effects=(refund_deduped,))
def refund_agent(ctx: TaskContext, order: str) -> str:
    cents = ctx.run(ask_model, order)
    return ctx.perform(refund_deduped, Money(order=order, cents=cents))


@step(effects=[refund_deduped])
def ask_and_pay_back(ctx: StepContext, order: str) -> str:
    return ctx.perform(refund_deduped, Money(order=order, cents=world.ask_model(order)))


refund_agent_in_one_step = Saga("refund_agent_in_one_step", input=str).then(ask_and_pay_back)


# -- forms of the same amount ----------------------------------------------------------------


class Loose(BaseModel):
    """An amount as it should not be written.

    Attributes:
        amount: In the currency's unit.
        form: How the second run comes to it.
    """

    order: str
    amount: float | None = None
    exact: Decimal | None = None


@effect(kind=EffectKind.IDEMPOTENT, sink="dedupes", refused=(PaymentRefused,), retry=QUICK)
def refund_loosely(call: EffectCall, loose: Loose) -> str:
    amount = loose.exact if loose.exact is not None else Decimal(str(loose.amount))
    money = Money(order=loose.order, cents=round(amount * 100))
    return send("dedupes", "refund", call, money, key=call.key)


forms: dict[str, list[Loose]] = {}
"""What each run of an order's refund asks for; the last one again and again."""


@step(effects=[refund_loosely])
def pay_back_loosely(ctx: StepContext, order: str) -> str:
    runs = forms[order]
    return ctx.perform(refund_loosely, runs.pop(0) if len(runs) > 1 else runs[0])


refund_loose = Saga("refund_loose", input=str).then(pay_back_loosely)


LATE = timedelta(seconds=0.6)
"""How late a delayed request is booked: after its caller has given up."""

ALL: list[Any] = [
    *purchases.values(),
    in_two_parts,
    refund_from_web,
    refund_at_night,
    order_again,
    refund_with_statement,
    asking_in_vain,
    asking_too_early,
    refund_connected_first,
    refund_less_fee,
    refund_unless_cancelled,
    charge_unless_cancelled,
    charging_task,
    charging_task_that_shrugs,
    stumbling,
    falling_back,
    falling_back_task,
    refund_agent,
    refund_agent_in_one_step,
    refund_loose,
]

__all__ = ["ALL", "PaymentUnclear", "world"]
