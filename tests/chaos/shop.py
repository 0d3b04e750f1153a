"""What the fleet works on: orders, refunds and releases, with an effect of every kind.

Each effect lands under a reference that names the order and what is done, such as
`order-17/charge`: by it the checker finds in a sink what has happened twice, or not at all.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import sqlalchemy as sa
from celery import Celery
from pydantic import BaseModel

import fencepost
from fencepost import (
    EffectCall,
    EffectKind,
    FencepostError,
    Landed,
    NotLanded,
    RetryPolicy,
    Saga,
    StepContext,
    TaskContext,
    TransactionalContext,
    effect,
    step,
)
from fencepost.stores.sql import create_engine
from tests.chaos import bank
from tests.chaos.warehouse import Warehouse

LEASE_TTL = timedelta(seconds=2)
MAX_RECOVERIES = 30
"""Takeovers without a checkpoint: the nemesis kills more often than any real week."""

WAREHOUSE = "CHAOS_WAREHOUSE"

PATIENT = RetryPolicy(
    attempts=60,
    first_delay=timedelta(seconds=0.2),
    max_delay=timedelta(seconds=1.5),
    retry_on=(Exception,),
)
"""Sinks are cut off for seconds, again and again: that is no reason to ask a person."""

T = TypeVar("T")


class Work(BaseModel):
    """The input of everything.

    Attributes:
        reference: By it the sinks count.
        doomed: The step that fails for good, if any does; the workload decides, not the nemesis.
        seconds: How long a step works before it writes.
        items: Children of a release.
        index: The item's own, in a child.
    """

    reference: str
    doomed: str = ""
    seconds: float = 0.2
    items: int = 0
    index: int = 0


class Receipt(BaseModel):
    """What a sink answers: the number of what it has recorded."""

    work: Work
    number: int


class DoomedError(FencepostError):
    """What the workload wanted to fail."""

    code = "shop.doomed"


metadata = sa.MetaData()
bookings = sa.Table(
    "bookings",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    # Nothing here is unique: whatever is booked twice is there twice.
    sa.Column("reference", sa.String(100), nullable=False, index=True),
    sa.Column("execution_id", sa.Uuid, nullable=False),
    sa.Column("step_key", sa.String(255), nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("at", sa.DateTime(timezone=True), server_default=sa.func.current_timestamp()),
)


def labour(ctx: StepContext, work: Work) -> None:
    """Work for a while, then fail if that is wanted."""
    time.sleep(work.seconds)
    if work.doomed in (ctx.step, f"{ctx.step}[{work.index}]"):
        raise DoomedError(f"{ctx.step} of {work.reference} was meant to fail")


def book(ctx: TransactionalContext, work: Work, what: str) -> None:
    """A row in the ledger's own database, in the step's transaction."""
    row = {
        "reference": f"{work.reference}/{what}",
        "execution_id": ctx.execution_id,
        "step_key": ctx.step_key,
        "epoch": ctx.epoch,
        "owner": f"{os.environ.get('CHAOS_WORKER', '?')}:{os.getpid()}",
    }
    ctx.session.execute(sa.insert(bookings), row)


def warehouse() -> Warehouse:
    """The warehouse of this process."""
    return _warehouse(os.getpid())


@functools.lru_cache(maxsize=2)
def _warehouse(_pid: int) -> Warehouse:
    return Warehouse(create_engine(os.environ[WAREHOUSE]), fenced=not unfenced())


def unfenced() -> bool:
    """Whether the guards are off."""
    return bool(os.environ.get("CHAOS_UNFENCED"))


# -- effects ---------------------------------------------------------------------------------


class WarehouseFence:
    """Raises the warehouse's mark."""

    def advance(self, resource: str, token: fencepost.FenceToken) -> None:
        """See `FencedSink.advance`."""
        warehouse().advance(resource, token)


def _at_bank(mode: str, what: str) -> Callable[[EffectCall, Work], Receipt]:
    def pay(call: EffectCall, work: Work) -> Receipt:
        number = bank.pay(mode, call, reference=f"{work.reference}/{what}")
        return Receipt(work=work, number=number)

    pay.__name__ = what
    return pay


def _was_paid(call: EffectCall, work: Work) -> Landed[Receipt] | NotLanded:
    found = bank.paid("queryable", call.key)
    return Landed(Receipt(work=work, number=found[0])) if found else NotLanded()


def _keyed(what: str) -> Any:
    declare = effect(kind=EffectKind.IDEMPOTENT, sink="bank-keyed", name=what, retry=PATIENT)
    return declare(_at_bank("keyed", what))


def _fenced(what: str) -> Any:
    declare = effect(
        kind=EffectKind.FENCED,
        sink="bank-fenced",
        name=what,
        fence=bank.BankFence(),
        retry=PATIENT,
    )
    return declare(_at_bank("fenced", what))


charge = _keyed("charge")
give_back = _keyed("give-back")
upload = _keyed("upload")
remove = _keyed("remove")
announce = _keyed("announce")
publish = _fenced("publish")
note = _fenced("note")
repay = effect(
    kind=EffectKind.RECONCILABLE,
    sink="bank-queryable",
    name="repay",
    probe=_was_paid,
    # The bank refuses what arrives after its caller's deadline: nothing is under way for longer.
    in_flight=LEASE_TTL,
    retry=PATIENT,
)(_at_bank("queryable", "repay"))
mail = effect(kind=EffectKind.AT_MOST_ONCE, sink="bank-blind", name="mail", retry=PATIENT)(
    _at_bank("blind", "mail")
)


@effect(kind=EffectKind.FENCED, sink="warehouse", fence=WarehouseFence(), retry=PATIENT)
def deliver(call: EffectCall, work: Work) -> Receipt:
    """A row in another database, behind a fence."""
    number = warehouse().deliver(call, f"{work.reference}/deliver")
    return Receipt(work=work, number=number)


# -- orders ----------------------------------------------------------------------------------


@step(transactional=True)
def unreserve(ctx: TransactionalContext, work: Work) -> None:
    book(ctx, work, "unreserve")


@step(transactional=True, compensate=unreserve)
def reserve(ctx: TransactionalContext, work: Work) -> Work:
    labour(ctx, work)
    book(ctx, work, "reserve")
    return work


@step(effects=[give_back])
def pay_back(ctx: StepContext, paid: Receipt) -> None:
    ctx.perform(give_back, paid.work)


@step(effects=[charge], compensate=pay_back)
def take_payment(ctx: StepContext, work: Work) -> Receipt:
    labour(ctx, work)
    return _receipt(ctx.perform(charge, work))


@step
def pack(ctx: StepContext, paid: Receipt) -> Work:
    labour(ctx, paid.work)
    return paid.work


@step(effects=[deliver])
def ship(ctx: StepContext, work: Work) -> Receipt:
    labour(ctx, work)
    return ctx.perform(deliver, work)


@step(effects=[mail])
def thank(ctx: StepContext, shipped: Receipt) -> Receipt:
    _receipt(ctx.perform(mail, shipped.work))
    return shipped


order = (
    Saga("order", input=Work).then(reserve).then(take_payment).then(pack).pivot(ship).then(thank)
)


# -- releases --------------------------------------------------------------------------------


@step
def build(ctx: StepContext, work: Work) -> Work:
    labour(ctx, work)
    return work


@step(effects=[remove])
def unstage(ctx: StepContext, staged: Receipt) -> None:
    ctx.perform(remove, staged.work)


@step(effects=[upload], compensate=unstage)
def stage(ctx: StepContext, work: Work) -> Receipt:
    labour(ctx, work)
    return _receipt(ctx.perform(upload, work))


@step(transactional=True)
def unregister(ctx: TransactionalContext, work: Work) -> None:
    book(ctx, work, "unregister")


@step(transactional=True, compensate=unregister)
def register(ctx: TransactionalContext, staged: Receipt) -> Work:
    labour(ctx, staged.work)
    book(ctx, staged.work, "register")
    return staged.work


module = Saga("module", input=Work).then(build).then(stage).then(register)


def modules_of(work: Work) -> list[Work]:
    """One child for each item, which the sinks know by a reference of its own."""
    return [
        work.model_copy(update={"reference": f"{work.reference}.{index}", "index": index})
        for index in range(work.items)
    ]


@step
def prepare(ctx: StepContext, work: Work) -> Work:
    labour(ctx, work)
    return work


@step
def gate(ctx: StepContext, modules: list[Work]) -> Work:
    whole = modules[0].model_copy(
        update={"reference": modules[0].reference.rpartition(".")[0], "index": 0}
    )
    labour(ctx, whole)
    return whole


@step(effects=[publish])
def promote(ctx: StepContext, work: Work) -> Receipt:
    labour(ctx, work)
    return _receipt(ctx.perform(publish, work))


@step(effects=[announce])
def tell(ctx: StepContext, promoted: Receipt) -> Receipt:
    return _receipt(ctx.perform(announce, promoted.work))


release = (
    Saga("release", input=Work)
    .then(prepare)
    .map(module, over=modules_of, name="modules", max_concurrency=2, max_items=12)
    .then(gate)
    .pivot(promote)
    .then(tell)
)


# -- refunds ---------------------------------------------------------------------------------


@step(retry=PATIENT)
def consider(ctx: StepContext, work: Work) -> Work:
    labour(ctx, work)
    return work


@step(transactional=True)
def enter(ctx: TransactionalContext, work: Work) -> Work:
    labour(ctx, work)
    book(ctx, work, "enter")
    return work


@fencepost.task(effects=(repay, note))
def refund(ctx: TaskContext, work: Work) -> Receipt:
    considered = ctx.run(consider, work)
    paid = _receipt(ctx.perform(repay, considered))
    entered = ctx.run(enter, considered)
    ctx.perform(note, entered)
    return paid


def _receipt(answer: Any) -> Receipt:
    assert isinstance(answer, Receipt)
    return answer


SAGAS: dict[str, Any] = {"order": order, "release": release, "refund": refund}


def make(broker: str, conf: dict[str, Any], **settings: Any) -> fencepost.Fencepost:
    """Fencepost on a new Celery app, for the workers and for whoever starts work."""
    app = Celery("shop", broker=broker, backend=broker, set_as_current=False)
    app.conf.update(conf)
    kind = fencepost.Fencepost
    if unfenced():
        from tests.chaos.unfenced import UnfencedShop

        kind = UnfencedShop
    return fencepost.install(app, sagas=SAGAS.values(), kind=kind, **settings)
